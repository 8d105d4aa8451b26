package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"perdure.dev/perdure/internal/errdefs"
)

// Draft is a snapshot that is being written. Streams are added one after the other, by one goroutine. It ends with Commit or Discard.
type Draft struct {
	l       *lineage
	release func()
	streams []Stream
	pins    map[*pack]struct{} // guarded by lineage.mu

	mu    sync.Mutex      // guards what follows; before lineage.mu
	mine  map[ID]struct{} // chunks that this draft has taken on
	cur   *packer         // nil when there is nothing
	added Added
	// failed is why a stream is not whole. What the draft has taken on may not be stored then, so that it cannot go on.
	failed error
}

// Added is what a draft stored.
type Added struct {
	Chunks  int
	Content int64 // bytes before compression
	Stored  int64 // bytes of packs
}

// Begin starts a snapshot of a lineage, which gets a key if it has none.
func (s *Store) Begin(ctx context.Context, name Lineage) (*Draft, error) {
	l, release, err := s.use(ctx, name, true)
	if err != nil {
		return nil, err
	}
	return &Draft{l: l, release: release, pins: map[*pack]struct{}{}, mine: map[ID]struct{}{}}, nil
}

// Add reads r to its end and stores it as a stream.
func (d *Draft) Add(ctx context.Context, name string, r io.Reader) (_ Ref, err error) {
	defer func() { d.failed = cmp.Or(d.failed, err) }()
	// The lines grow as the stream is read; a worker writes to the one whose number it was given.
	var mu sync.Mutex
	var lines []entry
	work, wctx := errgroup.WithContext(ctx)
	work.SetLimit(d.l.store.workers)
	err = cut(wctx, r, d.l.secrets.seed, func(p piece) error {
		if p.data == nil {
			mu.Lock()
			lines = append(lines, entry{size: p.zeros})
			mu.Unlock()
			return nil
		}
		mu.Lock()
		at := len(lines)
		lines = append(lines, entry{size: int64(len(*p.data))})
		mu.Unlock()
		work.Go(func() error {
			defer free(p.data)
			id, err := d.put(wctx, pages, *p.data)
			mu.Lock()
			lines[at].id = id
			mu.Unlock()
			return err
		})
		return nil
	})
	if werr := work.Wait(); werr != nil {
		err = werr // the cause; the cut was only told to stop
	}
	if err != nil {
		return Ref{}, err
	}
	ref, err := grow(lines, func(b []byte) (ID, error) { return d.put(ctx, node, b) })
	if err != nil {
		return Ref{}, err
	}
	d.streams = append(d.streams, Stream{name, ref})
	return ref, nil
}

// Adopt takes all streams of another snapshot of the lineage over, without reading them. That one stays open until Commit.
func (d *Draft) Adopt(from *Snapshot) { d.streams = append(d.streams, from.Streams...) }

// AdoptStream takes one stream of another snapshot of the lineage over, as Adopt does. It returns whether that snapshot has it.
func (d *Draft) AdoptStream(from *Snapshot, name string) bool {
	ref, ok := from.Stream(name)
	if ok {
		d.streams = append(d.streams, Stream{name, ref})
	}
	return ok
}

// put stores a chunk, unless the lineage has it.
func (d *Draft) put(ctx context.Context, k kind, data []byte) (ID, error) {
	id := d.l.secrets.id(k, data)
	if d.l.pin(d, id) {
		return id, nil
	}
	d.mu.Lock()
	_, have := d.mine[id]
	d.mine[id] = struct{}{}
	d.mu.Unlock()
	if have {
		return id, nil
	}
	return id, d.keep(ctx, id, k, data)
}

// keep stores a chunk, whether the lineage has it or not.
func (d *Draft) keep(ctx context.Context, id ID, k kind, data []byte) error {
	into := buffers.Get().(*[]byte)
	defer free(into)
	body, compressed := d.l.store.codecs.compress(data, *into)
	d.mu.Lock()
	if d.cur == nil {
		d.cur = newPacker(d.l.secrets, randomName(), packBuffer())
	}
	d.cur.add(id, k, body, len(data), compressed)
	d.added.Chunks++
	d.added.Content += int64(len(data))
	var full *packer
	if d.cur.full() {
		full, d.cur = d.cur, nil
	}
	d.mu.Unlock()
	return d.store(ctx, full)
}

// packBuffers are kept, since touching fresh memory costs more than filling it.
var packBuffers sync.Pool

func packBuffer() []byte {
	if b, ok := packBuffers.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, packFull+2*maxChunk)
}

// store writes a pack, if there is one.
func (d *Draft) store(ctx context.Context, p *packer) error {
	if p == nil {
		return nil
	}
	data := p.finish()
	defer func() { data = data[:0]; packBuffers.Put(&data) }()
	o := Object{Name: d.l.prefix("packs") + p.name, Size: int64(len(data))}
	if err := d.l.putObject(ctx, o.Name, data); err != nil {
		return err
	}
	stored, err := d.l.newPack(o)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.added.Stored += o.Size
	d.mu.Unlock()
	d.l.publish(d, stored, p.records)
	return nil
}

// flush writes what is not stored yet.
func (d *Draft) flush(ctx context.Context) error {
	d.mu.Lock()
	p := d.cur
	d.cur = nil
	d.mu.Unlock()
	return d.store(ctx, p)
}

// Commit makes the snapshot, under a name that is free. Meta is the caller's, and JSON. When it fails there is no snapshot, or, if the failure
// was only that the answer did not come, there is: Open says.
func (d *Draft) Commit(ctx context.Context, name string, meta any) (Manifest, Added, error) {
	defer d.Discard()
	if d.failed != nil {
		return Manifest{}, Added{}, d.failed
	}
	if err := checkName("snapshot", name); err != nil {
		return Manifest{}, Added{}, err
	}
	raw, err := json.Marshal(meta)
	if err != nil {
		return Manifest{}, Added{}, err
	}
	m := Manifest{Version: manifestVersion, Name: name, Streams: d.streams, Meta: raw}
	sealed, err := d.l.sealManifest(m)
	if err != nil {
		return Manifest{}, Added{}, err
	}
	if err := d.flush(ctx); err != nil {
		return Manifest{}, Added{}, err
	}
	if err := d.l.alive(ctx); err != nil {
		return Manifest{}, Added{}, err
	}
	if _, err := d.l.manifest(ctx, name); !isCode(err, CodeNotFound) {
		if err == nil {
			err = errdefs.New(errdefs.Conflict, CodeExists, "%s has a snapshot %s already", d.l.name, name)
		}
		return Manifest{}, Added{}, err
	}
	if err := d.l.putObject(ctx, manifestObject(d.l.name, name), sealed); err != nil {
		return Manifest{}, Added{}, err
	}
	return m, d.added, nil
}

// alive fails when the lineage has been destroyed since it was opened.
func (l *lineage) alive(ctx context.Context) error {
	key, err := l.store.keys.Key(ctx, l.name, false)
	if err == nil && key != l.key {
		err = errdefs.New(errdefs.Conflict, CodeKeyMissing, "the lineage %s was deleted while this was written", l.name)
	}
	return err
}

// putObject stores an object, and leaves nothing of it where the lineage is destroyed meanwhile: Destroy deletes the key first, and then lists the objects,
// so either it finds this one, or the key is gone by now.
func (l *lineage) putObject(ctx context.Context, name string, data []byte) error {
	if err := l.store.bucket.Put(ctx, name, data); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	err := l.alive(ctx)
	if isCode(err, CodeKeyMissing) {
		return errors.Join(err, l.store.bucket.Delete(ctx, name))
	}
	return err
}

// Discard gives the draft up. What it has stored goes with the next Collect. After Commit it does nothing.
func (d *Draft) Discard() {
	if d.release == nil {
		return
	}
	d.l.unpin(d)
	d.release()
	d.release = nil
}
