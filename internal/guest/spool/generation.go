package spool

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// Resume fits a stream to a guest that holds the bytes from start to produced. A longer stream, as a guest restored to an
// earlier time finds it, is cut, and the longer version kept as an older generation. Bytes missing before start are a gap.
func (r *Record) Resume(which sandbox.Stream, start, produced int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.stream(which)
	if err == nil && (start < 0 || start > produced) {
		return errdefs.New(errdefs.Invalid, "stream_invalid", "a stream cannot go on from %d of %d bytes", start, produced)
	}
	if err != nil || s.Capped && produced >= s.cappedAt(r.spool.opts.Cap) {
		return err
	}
	s.end = false
	if s.size >= start && s.size <= produced {
		return nil
	}
	if err := s.open(r.dir); err != nil {
		return err
	}
	if s.size > produced {
		return r.cutLocked(s, produced)
	}
	return r.gapLocked(s, start)
}

// cappedAt returns how many bytes a capped stream had kept. An earlier version knew one cap only and did not write it down.
func (s *stream) cappedAt(limit int64) int64 {
	if s.CappedAt > 0 {
		return s.CappedAt
	}
	return limit
}

// truncate cuts a stream that is longer than size; the longer version becomes an older generation.
func (r *Record) truncate(which sandbox.Stream, size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.stream(which)
	if err != nil || s.size <= size {
		return err
	}
	if err := s.open(r.dir); err != nil {
		return err
	}
	return r.cutLocked(s, size)
}

// cutLocked makes the stream's file an older generation and starts a new one with its first keep bytes.
func (r *Record) cutLocked(s *stream, keep int64) error {
	return r.replaceLocked(s, s.file, keep)
}

// replaceLocked makes the stream's file an older generation and starts a new one with the first keep bytes of src. The copy
// is complete before it takes the name, so a crash leaves one or the other whole.
func (r *Record) replaceLocked(s *stream, src io.ReaderAt, keep int64) error {
	name := filepath.Join(r.dir, s.name)
	fresh, err := os.OpenFile(name+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return writeError(err)
	}
	if _, err := io.Copy(fresh, io.NewSectionReader(src, 0, keep)); err != nil {
		fresh.Close()
		return writeError(err)
	}
	next := s.Generation + 1
	if err := os.Link(name, fmt.Sprintf("%s.%d", name, next)); err != nil && !os.IsExist(err) {
		fresh.Close()
		return writeError(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		fresh.Close()
		return writeError(err)
	}
	s.file.Close()
	s.file, s.size, s.Generation, s.Capped, s.CappedAt = fresh, keep, next, false, 0
	r.spool.stored.Add(keep)
	for i, g := range s.Gaps { // those behind the cut belong to the older generation
		if g.From >= keep {
			s.Gaps = s.Gaps[:i]
			break
		}
	}
	return r.saveLocked()
}

// openGeneration opens the file that holds generation gen of a stream, counted from 0; the newest one is the current file.
func (r *Record) openGeneration(which sandbox.Stream, gen int) (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.stream(which)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(r.dir, s.name)
	if gen < s.Generation { // it was put aside under the number that its successor got
		name = fmt.Sprintf("%s.%d", name, gen+1)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Internal, "spool_read", "reading generation %d of %s of command %s", gen, which, r.id)
	}
	return f, nil
}
