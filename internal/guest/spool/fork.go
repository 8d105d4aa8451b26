package spool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Cut is how a spool stood at one point in time. It is plain data, fit for a checkpoint's manifest.
type Cut struct{ Execs []CutExec } // oldest first

// CutExec is one command in a Cut: its state with the stream sizes of that time, and the generations that they count in.
type CutExec struct {
	Status    sandbox.ExecStatus
	StdoutGen int
	StderrGen int
}

// streams pairs each stream with its place in the cut.
func (c CutExec) streams() []cutStream {
	return []cutStream{
		{sandbox.Stdout, c.StdoutGen, c.Status.StdoutSize},
		{sandbox.Stderr, c.StderrGen, c.Status.StderrSize},
	}
}

type cutStream struct {
	which sandbox.Stream
	gen   int
	size  int64
}

// Cut returns how the spool stands. Call it while the guest is paused; what the guest had produced but not yet sent by
// then, a restored copy of it sends again.
func (s *Spool) Cut() Cut {
	var c Cut
	for _, r := range s.Records() {
		r.mu.Lock()
		r.flushLocked() // from here on the spool may be another writer's
		c.Execs = append(c.Execs, CutExec{r.statusLocked(), r.stdout.Generation, r.stderr.Generation})
		r.mu.Unlock()
	}
	return c
}

// CopyForFork fills the empty or missing directory dst with the commands of the cut and the output that they had by then.
// A command that ran at the cut is running in the copy, waiting for the restored guest to claim it. Errors: disk_full,
// spool_write, spool_cut.
func (s *Spool) CopyForFork(dst string, cut Cut) error {
	for _, c := range cut.Execs {
		if !id.ValidExternal(string(c.Status.ID)) {
			return errdefs.New(errdefs.Corrupt, "spool_cut", "the cut names %q, which is no exec id", c.Status.ID)
		}
		if err := s.copyRecord(filepath.Join(dst, string(c.Status.ID)), c); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spool) copyRecord(dir string, c CutExec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return writeError(err)
	}
	if r, err := s.Get(c.Status.ID); err == nil {
		for _, st := range c.streams() {
			if err := r.copyStream(st, filepath.Join(dir, string(st.which))); err != nil {
				return err
			}
		}
	}
	m := metaOf(c.Status)
	return writeMeta(dir, &m)
}

func (r *Record) copyStream(c cutStream, dst string) error {
	if c.size <= 0 {
		return nil
	}
	src, err := r.openGeneration(c.which, c.gen)
	if err != nil {
		return err
	}
	defer src.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return writeError(err)
	}
	if _, err := io.Copy(out, io.LimitReader(src, c.size)); err != nil {
		out.Close()
		return writeError(err)
	}
	return writeError(out.Close())
}

// Rewind takes the spool back to a cut of its own, as a rollback does: each stream goes on from where it stood, whatever
// came later is kept as an older generation, commands of the cut get back the state that they had, and commands that
// began after it become lost if they still run. Do it while no guest is connected.
func (s *Spool) Rewind(cut Cut) error {
	inCut := map[id.Exec]bool{}
	var errs []error
	for _, c := range cut.Execs {
		inCut[c.Status.ID] = true
		r, err := s.Get(c.Status.ID)
		if err != nil {
			r, _, err = s.Create(c.Status.Spec)
		}
		if err == nil {
			err = r.rewind(c)
		}
		errs = append(errs, err)
	}
	for _, r := range s.Records() {
		if !inCut[r.id] {
			_, err := r.Lose("its timeline was left by a rollback")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Record) rewind(c CutExec) error {
	for _, st := range c.streams() {
		if err := r.rewindStream(st); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meta = metaOf(c.Status)
	return r.saveLocked()
}

func (r *Record) rewindStream(c cutStream) error {
	r.mu.Lock()
	s, err := r.stream(c.which)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	same := s.Generation == c.gen
	s.end = false
	r.mu.Unlock()
	if same {
		return r.truncate(c.which, c.size)
	}
	src, err := r.openGeneration(c.which, c.gen)
	if err != nil {
		return err
	}
	defer src.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := s.open(r.dir); err != nil {
		return err
	}
	if s.size == c.size && sameContent(src, s.file, c.size) {
		return nil // rolled back to here before, and nothing was written since
	}
	return r.replaceLocked(s, src, c.size)
}

// sameContent reports whether the first n bytes of both are there and equal.
func sameContent(a, b io.ReaderAt, n int64) bool {
	const step = 64 << 10
	x, y := make([]byte, step), make([]byte, step)
	for at := int64(0); at < n; at += step {
		want := int(min(step, n-at))
		if i, _ := a.ReadAt(x[:want], at); i < want {
			return false
		}
		if i, _ := b.ReadAt(y[:want], at); i < want {
			return false
		}
		if !bytes.Equal(x[:want], y[:want]) {
			return false
		}
	}
	return true
}
