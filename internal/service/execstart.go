package service

import (
	"context"
	"io"
	"sync"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/sandbox"
)

// starts are the commands of a session that are being started, and the ends of commands that wait to be logged.
type starts struct {
	mu   sync.Mutex // guards all; taken after live.appendMu
	now  map[id.Exec]*start
	ends []event.Draft
}

// endsRest is how long the end of a command may wait for another append to go with. A client that runs one command after the other then
// has one synced write per command, not two. The spool knows the end at once, and a daemon that dies meanwhile leaves it to the next one.
const endsRest = 5 * time.Millisecond

// takeEnds returns the ends that wait, for the caller to log them first.
func (s *starts) takeEnds() []event.Draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	ends := s.ends
	s.ends = nil
	return ends
}

// putEnds takes back what could not be logged.
func (s *starts) putEnds(ends []event.Draft) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(ends, s.ends...)
}

// start is a command between the decision to start it and the moment when the spool knows it.
type start struct {
	logged chan struct{} // closed when the log has it
	err    error         // why it has not; written before
}

// enter writes a new command into the log before it starts. It reports whether the caller is the first to start it: to all others it is
// known. The first one calls leave when the spool knows the command, or never will.
//
// The spool is looked at from outside: asking the sandbox would take a round trip before each command.
func (l *live) enter(ctx context.Context, spec sandbox.ExecSpec) (first bool, leave func(), err error) {
	l.starts.mu.Lock()
	if s := l.starts.now[spec.ID]; s != nil {
		l.starts.mu.Unlock()
		select {
		case <-s.logged:
			return false, nil, s.err
		case <-ctx.Done():
			return false, nil, context.Cause(ctx)
		}
	}
	if l.spooled(spec.ID) {
		l.starts.mu.Unlock()
		return false, nil, nil
	}
	s := &start{logged: make(chan struct{})}
	if l.starts.now == nil {
		l.starts.now = map[id.Exec]*start{}
	}
	l.starts.now[spec.ID] = s
	l.starts.mu.Unlock()
	leave = func() {
		l.starts.mu.Lock()
		defer l.starts.mu.Unlock()
		delete(l.starts.now, spec.ID)
	}
	argv := spec.Argv
	if spec.Kind != sandbox.ExecProcess {
		argv = []string{string(spec.Kind), spec.Code}
	}
	_, s.err = l.append(ctx, event.Draft{Type: event.ExecStarted, Data: event.ExecStartedData{
		ExecID: spec.ID, Argv: argv, TTY: spec.TTY != nil, Background: spec.Background,
	}})
	close(s.logged)
	if s.err != nil {
		leave()
	}
	return s.err == nil, leave, s.err
}

// spooled reports whether the session's spool knows a command, running or ended.
func (l *live) spooled(exec id.Exec) bool { return spool.Has(l.svc.cfg.Dirs.Spool(l.id), exec) }

// startExec starts a command, or finds the one that has the id, and follows it to its end.
func (l *live) startExec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.ExecStatus, error) {
	if l.spooled(spec.ID) { // which wakes nothing
		if st, err := l.reader().Status(ctx, spec.ID); err == nil {
			return st, nil
		}
	}
	sb, err := l.running(ctx)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	first, leave, err := l.enter(ctx, spec)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	st, err := sb.Execs().Start(ctx, spec)
	if !first {
		return st, err
	}
	leave()
	l.svc.at("exec.started")
	if err != nil && st.ID == "" {
		l.failedExec(context.WithoutCancel(ctx), sb, spec.ID, err)
		return st, err
	}
	l.follow(sb, spec.ID)
	return st, err
}

// runExec starts a command, or finds the one that has the id, and returns when it has ended, with the first limit bytes of each stream.
func (l *live) runExec(ctx context.Context, spec sandbox.ExecSpec, limit int) (sandbox.ExecResult, error) {
	if l.spooled(spec.ID) {
		return l.waitResult(ctx, spec.ID, limit)
	}
	using := l.use(idle.Access) // until the log has it, which then is reason enough
	defer using()
	lasting := context.WithoutCancel(ctx) // the client may go, the command is to run
	sb, err := l.running(lasting)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	first, leave, err := l.enter(lasting, spec)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	if !first {
		if _, err := sb.Execs().Start(lasting, spec); err != nil {
			return sandbox.ExecResult{}, err
		}
		return l.waitResult(ctx, spec.ID, limit)
	}
	using()
	type outcome struct {
		res  sandbox.ExecResult
		err  error
		wait bool // it goes on
	}
	done := make(chan outcome, 1)
	going := l.svc.goroutine(func(run context.Context) {
		res, err := sb.Execs().Run(run, spec, limit)
		leave()
		l.svc.at("exec.started")
		switch {
		case run.Err() != nil:
			done <- outcome{err: context.Cause(run)}
		case err == nil && res.Status.State == sandbox.ExecExited:
			done <- outcome{res: res} // before the log has it: the result comes after the act in any case
			l.finishSoon(run, res.Status)
		case err == nil || l.begun(run, sb, spec.ID):
			done <- outcome{wait: true}
			l.follow(sb, spec.ID)
		default:
			l.failedExec(run, sb, spec.ID, err)
			done <- outcome{err: err}
		}
	})
	if !going {
		leave()
		return sandbox.ExecResult{}, errStopping
	}
	select {
	case o := <-done:
		if o.wait {
			return l.waitResult(ctx, spec.ID, limit)
		}
		return o.res, o.err
	case <-ctx.Done():
		return sandbox.ExecResult{}, context.Cause(ctx)
	}
}

// finishSoon records the end of a command with the next append, or by itself if there is none.
func (l *live) finishSoon(ctx context.Context, st sandbox.ExecStatus) {
	l.starts.putEnds([]event.Draft{ended(st)})
	if l.svc.cfg.Clock.Sleep(ctx, endsRest) != nil {
		return // the daemon stops, and the next one finds the end in the spool
	}
	if _, err := l.append(ctx); err != nil && !isStopping(err) && !isNotFound(err) {
		l.svc.cfg.Logger.Error("cannot record the end of a command", "session", l.id, "exec", st.ID, "error", err)
	}
}

// begun reports whether a command of which a call has failed runs all the same, or has run until its sandbox died.
func (l *live) begun(ctx context.Context, sb sandbox.Sandbox, exec id.Exec) bool {
	st, err := sb.Execs().Status(ctx, exec)
	return err == nil && (st.State == sandbox.ExecRunning || st.State == sandbox.ExecLost)
}

// failedExec records a command that did not start.
func (l *live) failedExec(ctx context.Context, sb sandbox.Sandbox, exec id.Exec, cause error) {
	st, err := sb.Execs().Status(ctx, exec)
	if err != nil {
		st = sandbox.ExecStatus{ID: exec, Cause: "not started: " + cause.Error()}
	}
	l.finishExec(ctx, st)
}

// waitResult waits for a command that is there, over whatever happens to its sandbox, and reads the beginning of its output.
func (l *live) waitResult(ctx context.Context, exec id.Exec, limit int) (sandbox.ExecResult, error) {
	var res sandbox.ExecResult
	var err error
	if res.Status, err = l.waitExec(ctx, exec); err != nil {
		return res, err
	}
	head := func(stream sandbox.Stream, size int64) []byte {
		if size == 0 || limit == 0 || err != nil {
			return nil
		}
		var r io.ReadCloser
		if r, err = l.reader().Output(ctx, exec, stream, 0, false); err != nil {
			return nil
		}
		defer r.Close()
		var data []byte
		data, err = io.ReadAll(io.LimitReader(r, int64(limit)))
		return data
	}
	res.Stdout, res.Stderr = head(sandbox.Stdout, res.Status.StdoutSize), head(sandbox.Stderr, res.Status.StderrSize)
	return res, err
}
