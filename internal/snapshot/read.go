package snapshot

import (
	"context"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"perdure.dev/perdure/internal/errdefs"
)

// Snapshot is one that is being read. Until Close, what it needs stays, also when the snapshot is deleted meanwhile.
type Snapshot struct {
	Manifest
	l       *lineage
	release func()
	ready   chan struct{} // closed when Manifest is set, or will never be
}

// Open returns a snapshot. Its manifest has been verified; its streams are as they are read.
func (s *Store) Open(ctx context.Context, name Lineage, snapshot string) (*Snapshot, error) {
	l, release, err := s.use(ctx, name, false)
	if err != nil {
		return nil, err
	}
	// It is held before it is read: a Collect that lists the manifests in between must know of it.
	sn := &Snapshot{l: l, release: release, ready: make(chan struct{})}
	l.mu.Lock()
	l.reading[sn] = struct{}{}
	l.mu.Unlock()
	m, err := l.manifest(ctx, snapshot)
	sn.Manifest = m
	close(sn.ready)
	if err != nil {
		sn.Close()
		return nil, err
	}
	return sn, nil
}

// Close ends the reading.
func (s *Snapshot) Close() {
	s.l.mu.Lock()
	delete(s.l.reading, s)
	s.l.mu.Unlock()
	s.release()
}

// run is what one read of the bucket brings: chunks that lie next to each other in a pack, and in the stream.
type run struct {
	places  []place
	offsets []int64 // in the stream
	end     uint32  // in the pack
}

const runBytes = 1 << 20

func (r *run) takes(at place) bool {
	return len(r.places) == 0 || r.places[0].pack == at.pack && r.end == at.offset && r.end-r.places[0].offset < runBytes
}

func (r *run) take(at place, offset int64) {
	r.places, r.offsets, r.end = append(r.places, at), append(r.offsets, offset), at.offset+at.stored
}

// Extract writes a stream to w, each byte verified, and its zeros not at all: w reads as zeros where nothing was written, as a file does that is new.
// What was written when it fails is worth nothing. It returns the bytes that were written.
func (s *Snapshot) Extract(ctx context.Context, stream string, w io.WriterAt) (int64, error) {
	ref, ok := s.Stream(stream)
	if !ok {
		return 0, errdefs.New(errdefs.NotFound, CodeNotFound, "snapshot %s has no stream %s", s.Name, stream)
	}
	var written atomic.Int64
	work, wctx := errgroup.WithContext(ctx)
	work.SetLimit(s.l.store.workers)
	var next run
	flush := func() {
		if r := next; len(r.places) > 0 {
			work.Go(func() error { return s.extract(wctx, r, w, &written) })
		}
		next = run{}
	}
	err := walker{load: s.l.read, leaf: func(e entry, offset int64) error {
		if err := wctx.Err(); err != nil {
			return context.Cause(wctx)
		}
		if e.id.zero() {
			return nil
		}
		at, ok := s.l.find(e.id)
		if !ok {
			_, err := s.l.read(wctx, pages, e.id) // for its error
			return err
		}
		if int64(at.length) != e.size {
			return corrupt("chunk %s has %d bytes, and its node says %d", e.id, at.length, e.size)
		}
		if !next.takes(at) {
			flush()
		}
		next.take(at, offset)
		return nil
	}}.walk(wctx, ref)
	flush()
	if werr := work.Wait(); werr != nil {
		err = werr
	}
	return written.Load(), err
}

// Check reads all streams, and verifies each byte.
func (s *Snapshot) Check(ctx context.Context) error {
	for _, stream := range s.Streams {
		if _, err := s.Extract(ctx, stream.Name, nowhere{}); err != nil {
			return err
		}
	}
	return nil
}

// nowhere is written to by a Check.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// extract reads a run and writes what is in it.
func (s *Snapshot) extract(ctx context.Context, r run, w io.WriterAt, written *atomic.Int64) error {
	first := r.places[0]
	sealed, err := getAll(ctx, s.l.store.bucket, first.object, int64(first.offset), int64(r.end-first.offset))
	if isCode(err, CodeObjectMissing) {
		sealed = nil // rewritten since: one by one
	} else if err != nil {
		return err
	}
	for i, at := range r.places {
		var body []byte
		if sealed == nil {
			body, err = s.l.read(ctx, pages, at.id)
		} else {
			body, err = s.l.open(at, pages, sealed[at.offset-first.offset:][:at.stored])
		}
		if err != nil {
			return err
		}
		if _, err := w.WriteAt(body, r.offsets[i]); err != nil {
			return err
		}
		written.Add(int64(len(body)))
	}
	return nil
}

// readObject reads a whole object.
func readObject(ctx context.Context, b Bucket, name string) ([]byte, error) {
	r, err := b.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
