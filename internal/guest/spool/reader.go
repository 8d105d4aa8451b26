package spool

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// reader reads a stream by offset.
type reader struct {
	ctx    context.Context // of the caller's Output call: it ends a follow
	record *Record
	which  sandbox.Stream
	follow bool
	offset int64
	file   *os.File // of one generation
	gen    int
}

// Reader reads a stream from offset to the end of what there is, or with follow until the command has ended and all
// that it wrote has been read. A rollback beneath a reader does not disturb it: it goes on at its offset in the new generation.
// Errors: stream_invalid, offset_invalid.
func (r *Record) Reader(ctx context.Context, which sandbox.Stream, offset int64, follow bool) (io.ReadCloser, error) {
	if offset < 0 {
		return nil, errdefs.New(errdefs.Invalid, "offset_invalid", "offset %d is negative", offset)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.stream(which); err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, record: r, which: which, follow: follow, offset: offset}, nil
}

// Heads returns the first limit bytes of each stream, as far as they are there.
func (r *Record) Heads(ctx context.Context, limit int) (stdout, stderr []byte, err error) {
	if stdout, err = r.head(ctx, sandbox.Stdout, limit); err == nil {
		stderr, err = r.head(ctx, sandbox.Stderr, limit)
	}
	return stdout, stderr, err
}

func (r *Record) head(ctx context.Context, which sandbox.Stream, limit int) ([]byte, error) {
	n := min(r.Size(which), int64(limit))
	if n <= 0 {
		return nil, nil
	}
	rd, err := r.Reader(ctx, which, 0, false)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	buf := make([]byte, n)
	got, err := io.ReadFull(rd, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // a rollback has cut it meanwhile
		err = nil
	}
	return buf[:got], err
}

// Read implements io.Reader.
func (rd *reader) Read(p []byte) (int, error) {
	for {
		n, err := rd.once(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		r := rd.record
		r.mu.Lock()
		s, _ := r.stream(rd.which)
		more, changed := s.size > rd.offset, r.changed
		done := !rd.follow || r.meta.State != sandbox.ExecRunning || s.end
		closed := r.closed
		r.mu.Unlock()
		switch {
		case more:
			continue
		case done:
			return 0, io.EOF
		case closed:
			return 0, errdefs.New(errdefs.Unavailable, "spool_closed", "the spool was closed")
		}
		select {
		case <-changed:
		case <-rd.ctx.Done():
			return 0, context.Cause(rd.ctx)
		}
	}
}

// once reads what there is, opening the file of the current generation when it is not open.
func (rd *reader) once(p []byte) (int, error) {
	r := rd.record
	r.mu.Lock()
	s, _ := r.stream(rd.which)
	gen, size := s.Generation, s.size
	if rd.file == nil || rd.gen != gen {
		rd.Close()
		f, err := os.Open(filepath.Join(r.dir, s.name)) // under the lock, so that the file is that generation's
		if err == nil {
			rd.file, rd.gen = f, gen
		} else if !errors.Is(err, os.ErrNotExist) {
			r.mu.Unlock()
			return 0, errdefs.Wrap(err, errdefs.Internal, "spool_read", "reading the output of a command")
		}
	}
	r.mu.Unlock()
	left := size - rd.offset
	if rd.file == nil || left <= 0 {
		return 0, nil
	}
	n, err := rd.file.ReadAt(p[:min(int64(len(p)), left)], rd.offset)
	rd.offset += int64(n)
	if n > 0 || errors.Is(err, io.EOF) {
		return n, nil
	}
	return 0, errdefs.Wrap(err, errdefs.Internal, "spool_read", "reading the output of a command")
}

// Close implements io.Closer.
func (rd *reader) Close() error {
	if rd.file == nil {
		return nil
	}
	err := rd.file.Close()
	rd.file = nil
	return err
}
