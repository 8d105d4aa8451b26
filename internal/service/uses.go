package service

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

// uses are what goes on in a workspace of which the log does not tell: terminals, files, connections. Guarded by live.mu.
type uses struct {
	now    map[idle.Source]*use
	last   time.Time // when the last one ended
	barred bool      // the workspace is about to be put to sleep for want of use: whoever comes now waits for that, and wakes it
}

// use is what goes on of one source.
type use struct {
	count int
	since time.Time
}

// use says that somebody works in the workspace until release is called. Whoever asks for the sandbox holds one from before he asks until
// he is done, so that it does not fall asleep under his hands.
func (l *live) use(source idle.Source) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.uses.now[source]
	if u == nil {
		u = &use{since: l.svc.cfg.Clock.Now()}
		if l.uses.now == nil {
			l.uses.now = map[idle.Source]*use{}
		}
		l.uses.now[source] = u
	}
	u.count++
	l.changes.touches++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changes.touches++
		l.uses.last = l.svc.cfg.Clock.Now()
		if u.count--; u.count == 0 {
			delete(l.uses.now, source)
		}
	})
}

// bar keeps everybody from the sandbox, if nobody works in it. It reports false if somebody does.
func (l *live) bar() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.uses.now) > 0 || l.drive != nil || l.gone != nil {
		return false
	}
	l.uses.barred = true
	l.held++ // no harness starts meanwhile
	return true
}

// unbar is the end of bar.
func (l *live) unbar() {
	l.mu.Lock()
	l.uses.barred = false
	l.held--
	l.mu.Unlock()
	if statusRunning(l.state()) { // a message came meanwhile
		l.kick()
	}
}

// ready returns the sandbox, unless there is none or it is about to be put to sleep.
func (l *live) ready() sandbox.Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses.barred {
		return nil
	}
	return l.sandbox
}

// within runs f with the sandbox of a workspace that runs, waking it first. It fails where there is nothing to wake: a command that a
// workspace sleeps without is not in the one that would wake.
func (s *Service) within(ctx context.Context, ref string, exec id.Exec, f func(sandbox.Sandbox) error) error {
	l, err := s.live(ctx, ref)
	if err != nil {
		return err
	}
	defer l.use(idle.Access)()
	sb, err := l.reach(ctx, exec)
	if err != nil {
		return err
	}
	return f(sb)
}

// reach returns the sandbox that a command runs in. One that has ended wakes nothing.
func (l *live) reach(ctx context.Context, exec id.Exec) (sandbox.Sandbox, error) {
	st := l.state()
	if sb := l.ready(); sb != nil && st.Workspace.State == session.WorkspaceRunning {
		return sb, nil
	}
	status, err := l.execStatus(ctx, exec)
	if err != nil {
		return nil, err
	}
	if status.State != sandbox.ExecRunning {
		return nil, wrongState(st, "reach into", "running")
	}
	return l.running(ctx)
}

// AttachExec says that a client works with a command, until leave is called. With a terminal that keeps the session awake.
func (s *Service) AttachExec(ctx context.Context, ref string, exec id.Exec) (leave func(), err error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return nil, err
	}
	st, err := l.execStatus(ctx, exec)
	if err != nil {
		return nil, err
	}
	if st.Spec.TTY == nil {
		return func() {}, nil
	}
	return l.use(idle.Terminal), nil
}

// detailOf says how often something goes on, for people.
func detailOf(source idle.Source, count int) string {
	one, many := string(source), string(source)
	switch source {
	case idle.Terminal:
		one, many = "a terminal is open", "terminals are open"
	case idle.Files:
		one, many = "files are being read or written", "transfers of files are in progress"
	case idle.Access:
		one, many = "a command is being started or given input", "commands are being started or given input"
	case idle.Port:
		one, many = "a connection to a forwarded port is open", "connections to forwarded ports are open"
	}
	if count == 1 {
		return one
	}
	return strconv.Itoa(count) + " " + many
}

// freeze notes the processes of a workspace that is about to be paused: nothing changes in it then. They are told to whoever asks.
func (l *live) freeze(ctx context.Context, sb sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	procs, err := sb.Files().Processes(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = nil
	if err == nil {
		l.frozen = slices.Clip(procs)
	}
}

func (l *live) frozenProcesses() []sandbox.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen
}

// errExpired is the error of whatever needs a session awake that has been so for as long as it may.
func errExpired(st session.State, limit time.Duration) error {
	return errdefs.New(errdefs.Conflict, "session_expired", "session %s has been awake for %s, which is all that it may", st.Name, limit).
		WithHint("its work is saved: give it more with perdure set %s --expire-after, or fork it: perdure fork %s", st.Name, st.Name)
}
