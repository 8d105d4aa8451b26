package spool

import (
	"sync"
	"time"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Record is one command in the spool.
type Record struct {
	spool *Spool
	id    id.Exec
	dir   string

	mu      sync.Mutex // guards all below
	meta    meta
	journal journal
	unsaved *time.Timer // will write what Started noted; nil: nothing to write
	stdout  stream
	stderr  stream
	stdin   int64         // see Took
	changed chan struct{} // closed and replaced at each change
	closed  bool
}

func newRecord(s *Spool, spec sandbox.ExecSpec) *Record {
	r := &Record{spool: s, id: spec.ID, dir: s.path(spec.ID), changed: make(chan struct{})}
	r.meta = meta{Version: metaVersion, Spec: spec, State: sandbox.ExecRunning, StartedAt: s.opts.Clock.Now()}
	r.stdout.name, r.stderr.name = string(sandbox.Stdout), string(sandbox.Stderr)
	return r
}

// openRecord loads a record. A damaged one becomes a lost one, so that one torn file makes no spool unreadable.
func openRecord(s *Spool, exec id.Exec) *Record {
	r := newRecord(s, sandbox.ExecSpec{ID: exec})
	m, err := readMeta(r.dir)
	if err == nil && m.Spec.ID == exec {
		r.meta = m
	} else {
		r.meta.State, r.meta.Cause = sandbox.ExecLost, "its record was damaged"
		r.meta.StartedAt, r.meta.EndedAt = time.Time{}, time.Time{}
	}
	r.stdout.load(r.dir, r.meta.Stdout)
	r.stderr.load(r.dir, r.meta.Stderr)
	return r
}

func (r *Record) reload() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, err := readMeta(r.dir); err == nil && m.Spec.ID == r.id { // else what is known is better than what is there
		r.meta = m
	}
	r.journal.close()
	r.stdout.close()
	r.stderr.close()
	r.stdout.load(r.dir, r.meta.Stdout)
	r.stderr.load(r.dir, r.meta.Stderr)
	r.notifyLocked()
}

// ID returns the command's id.
func (r *Record) ID() id.Exec { return r.id }

func (r *Record) started() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meta.StartedAt
}

// Status returns what is known of the command.
func (r *Record) Status() sandbox.ExecStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.statusLocked()
}

func (r *Record) statusLocked() sandbox.ExecStatus {
	st := r.meta.status()
	st.StdoutSize, st.StderrSize, st.StdinSize = r.stdout.size, r.stderr.size, r.stdin
	return st
}

// saveAfter is how long what Started noted may wait to be written. Most commands have ended by then, and one line says it all.
const saveAfter = 50 * time.Millisecond

// Started notes the process id of a running command and when it began. A cause is a note for people. It is written a moment later, so
// that a crash may lose it; that the command exists was written before it started.
func (r *Record) Started(pid int, at time.Time, cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meta.State == sandbox.ExecLost {
		return
	}
	r.meta.PID = pid
	if r.meta.State == sandbox.ExecRunning || r.meta.Cause == "" { // else the exit has overtaken the news of the start, and says more
		r.meta.Cause = cause
	}
	if !at.IsZero() {
		r.meta.StartedAt = at
	}
	if r.unsaved == nil && !r.closed {
		r.unsaved = time.AfterFunc(saveAfter, r.flush)
	}
	r.notifyLocked()
}

// flush writes what was noted only. A failure shows with the next change, which writes everything again.
func (r *Record) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushLocked()
}

func (r *Record) flushLocked() {
	if r.unsaved != nil {
		_ = r.saveLocked()
	}
}

// Took notes how much input the guest has taken. The guest knows better, so this is not stored.
func (r *Record) Took(next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stdin = next
}

// End is how a command ended.
type End struct {
	ExitCode *int
	Signal   string
	Cause    string
	TimedOut bool
	At       time.Time
}

// Exit records the end of a running command; it does nothing to one that has ended.
func (r *Record) Exit(e End) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meta.State != sandbox.ExecRunning {
		return nil
	}
	r.meta.State = sandbox.ExecExited
	r.meta.ExitCode, r.meta.Signal, r.meta.TimedOut, r.meta.EndedAt = e.ExitCode, e.Signal, e.TimedOut, e.At
	if e.Cause != "" {
		r.meta.Cause = e.Cause
	}
	return r.saveLocked()
}

// Lose turns a running command into a lost one and reports whether it was running.
func (r *Record) Lose(cause string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meta.State != sandbox.ExecRunning {
		return false, nil
	}
	r.meta.State, r.meta.Cause, r.meta.EndedAt = sandbox.ExecLost, cause, r.spool.opts.Clock.Now()
	return true, r.saveLocked()
}

// Revive puts an ended command back to running: a restored guest runs it again from before its end.
func (r *Record) Revive(pid int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.meta
	m.State, m.PID, m.ExitCode, m.Signal, m.Cause, m.TimedOut = sandbox.ExecRunning, pid, nil, "", "", false
	m.EndedAt = time.Time{}
	return r.saveLocked()
}

// Changed returns the status and a channel that is closed at the next change of anything in the record.
func (r *Record) Changed() (sandbox.ExecStatus, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.statusLocked(), r.changed
}

func (r *Record) notifyLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Record) saveLocked() error {
	if r.unsaved != nil {
		r.unsaved.Stop()
		r.unsaved = nil
	}
	r.meta.Stdout, r.meta.Stderr = r.stdout.streamMeta, r.stderr.streamMeta
	err := r.journal.write(r.dir, &r.meta)
	if r.meta.State != sandbox.ExecRunning {
		r.journal.close()
	}
	r.notifyLocked()
	return err
}

func (r *Record) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.flushLocked()
	r.journal.close()
	r.stdout.close()
	r.stderr.close()
	r.notifyLocked()
}

// Now returns the time of the spool's clock.
func (r *Record) Now() time.Time { return r.spool.opts.Clock.Now() }
