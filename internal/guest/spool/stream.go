package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// stream is one output stream of a record; Record.mu guards it.
type stream struct {
	streamMeta
	name string
	size int64    // of the file
	file *os.File // opened at the first write
	end  bool     // nothing more will come
}

func (s *stream) load(dir string, m streamMeta) {
	s.streamMeta = m
	if info, err := os.Stat(filepath.Join(dir, s.name)); err == nil {
		s.size = info.Size()
	}
}

func (s *stream) open(dir string) error {
	if s.file != nil {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, s.name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return writeError(err)
	}
	s.file = f
	return nil
}

func (s *stream) close() {
	if s.file != nil {
		s.file.Close() // plain data files without a write cache of ours: nothing to learn from the error
		s.file = nil
	}
}

func (r *Record) stream(which sandbox.Stream) (*stream, error) {
	switch which {
	case sandbox.Stdout:
		return &r.stdout, nil
	case sandbox.Stderr:
		return &r.stderr, nil
	}
	return nil, errdefs.New(errdefs.Invalid, "stream_invalid", "there is no stream %q", which).WithHint("use stdout or stderr")
}

// Size returns the stored bytes of a stream.
func (r *Record) Size(which sandbox.Stream) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.stream(which)
	if err != nil {
		return 0
	}
	return s.size
}

// Append stores data whose first byte stands at offset in the stream. Bytes that are there already are compared: where
// they differ the timelines part, and the older rest is put aside as a generation. Bytes missing before offset are
// recorded as a gap. Errors: disk_full, spool_write.
func (r *Record) Append(which sandbox.Stream, offset int64, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.stream(which)
	if err != nil || len(data) == 0 || s.Capped {
		return err
	}
	if err := s.open(r.dir); err != nil {
		return err
	}
	if offset > s.size {
		if err := r.gapLocked(s, offset); err != nil || s.Capped {
			return err
		}
	}
	if offset < s.size {
		same, err := s.sameBytes(offset, data)
		if err != nil {
			return err
		}
		offset, data = offset+int64(same), data[same:]
		if len(data) == 0 {
			return nil
		}
		if offset < s.size {
			if err := r.cutLocked(s, offset); err != nil {
				return err
			}
		}
	}
	return r.writeLocked(s, offset, data)
}

// sameBytes returns how many of the first bytes of data equal the stored ones at offset.
func (s *stream) sameBytes(offset int64, data []byte) (int, error) {
	have := make([]byte, min(int64(len(data)), s.size-offset))
	n, err := s.file.ReadAt(have, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, errdefs.Wrap(err, errdefs.Internal, "spool_read", "reading the output of a command")
	}
	have = have[:n]
	if bytes.Equal(have, data[:n]) {
		return n, nil
	}
	for i := range have {
		if have[i] != data[i] {
			return i, nil
		}
	}
	return n, nil
}

func (r *Record) writeLocked(s *stream, offset int64, data []byte) error {
	limit, what := r.spool.limit(offset)
	capped := offset+int64(len(data)) > limit
	if capped {
		data = data[:max(0, limit-offset)]
		s.CappedAt = offset + int64(len(data))
		reached := s.CappedAt
		if what != "this stream" {
			reached = r.spool.opts.Total
		}
		data = append(bytes.Clone(data), fmt.Sprintf("\n[perdure: %s reached %d bytes; the rest was not kept]\n", what, reached)...)
	}
	n, err := s.file.WriteAt(data, offset)
	r.spool.stored.Add(max(0, offset+int64(n)-s.size))
	s.size = max(s.size, offset+int64(n))
	if err != nil {
		r.notifyLocked()
		return writeError(err)
	}
	if capped {
		s.Capped = true
		return r.saveLocked()
	}
	r.notifyLocked()
	return nil
}

const (
	// gapFill is how much of a gap takes space on the disk, in bytes: the note and some blanks. The rest of it is a hole, since the
	// length of a gap is the word of a stranger.
	gapFill = 4 << 10
	// maxGap is the longest gap, in bytes, of a stream without a cap. It is as long as a capped stream ever gets.
	maxGap = 1 << 30
)

// gapLocked continues the file at offset behind a note, so that offsets stay what they are. A gap that reaches beyond the cap ends
// the stream. Error: gap_too_long.
func (r *Record) gapLocked(s *stream, offset int64) error {
	from := s.size
	if limit, _ := r.spool.limit(from); offset > limit {
		return r.writeLocked(s, max(from, limit), []byte{' '})
	}
	if offset-from > maxGap {
		return errdefs.New(errdefs.Invalid, "gap_too_long", "%d bytes are missing from the output of %s", offset-from, r.id)
	}
	note := fmt.Appendf(nil, "\n[perdure: %d bytes of output are missing here]\n", offset-from)
	fill := bytes.Repeat([]byte{' '}, int(min(offset-from, gapFill)))
	copy(fill, note)
	if _, err := s.file.WriteAt(fill, from); err != nil {
		return writeError(err)
	}
	r.spool.stored.Add(int64(len(fill)))
	if err := s.file.Truncate(offset); err != nil {
		return writeError(err)
	}
	s.size = offset
	s.Gaps = append(s.Gaps, Gap{From: from, To: offset})
	return r.saveLocked()
}

// CloseStream says that no more bytes will come, which frees the file handle.
func (r *Record) CloseStream(which sandbox.Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, err := r.stream(which); err == nil {
		s.end = true
		s.close()
		r.notifyLocked()
	}
}
