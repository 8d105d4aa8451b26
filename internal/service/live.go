package service

import (
	"context"
	"slices"
	"sync"

	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/workspace"
)

// live is a session in use. See the package comment.
type live struct {
	svc *Service
	id  id.Session

	ops     chan struct{} // holds one token: whoever takes it may operate on the workspace
	changed chan struct{} // a token for the harness: somebody else has appended

	appendMu sync.Mutex // guards the fields below, and orders appends
	tracker  *session.Tracker
	lease    event.Generation

	starts starts // of commands

	portConns   chan struct{} // a slot for each connection to a forwarded port
	configuring sync.Mutex    // held while what holds for the session is read and changed; taken before appendMu

	mu       sync.Mutex // guards the fields below
	sandbox  sandbox.Sandbox
	drive    *drive        // the harness at work, if any
	held     int           // while above 0 no harness is started
	asleep   bool          // paused, suspended or stopped on request: only a message or resume starts the harness again
	bump     chan struct{} // closed and replaced at every append
	gone     error         // set when the session is deleted
	watchers map[chan agent.Delta]struct{}
	uses     uses
	changes  changes           // since the last checkpoint
	cpu      idle.Load         // of the sandbox
	frozen   []sandbox.Process // of a paused workspace, if known

	inherited bool // the sandbox was there when the daemon started

	// workspace belongs to whoever holds the ops token.
	workspace *workspace.Workspace
}

func newLive(s *Service, sid id.Session) *live {
	l := &live{
		svc: s, id: sid, ops: make(chan struct{}, 1), changed: make(chan struct{}, 1), bump: make(chan struct{}),
		watchers: map[chan agent.Delta]struct{}{}, portConns: make(chan struct{}, maxPortConns),
	}
	l.ops <- struct{}{}
	return l
}

// load reads the session, once.
func (l *live) load(ctx context.Context) error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if l.tracker != nil {
		return nil
	}
	t, err := session.Load(ctx, l.svc.cfg.Log, l.id)
	if err != nil {
		return err
	}
	if l.lease, err = l.svc.cfg.Log.Acquire(ctx, l.id, l.svc.owner); err != nil {
		return err
	}
	st := t.State()
	w, err := workspace.Open(l.svc.cfg.Dirs, l.id, st.Spec.Image)
	if err != nil {
		return err
	}
	l.tracker, l.workspace = t, w
	asleep, err := l.sleeps(ctx, st)
	if err != nil {
		l.tracker = nil
		return err
	}
	l.mu.Lock()
	l.asleep = asleep
	l.mu.Unlock()
	return nil
}

// sleeps reports whether the session was put to sleep and nobody has sent it a message since.
func (l *live) sleeps(ctx context.Context, st session.State) (bool, error) {
	switch st.Workspace.State {
	case session.WorkspacePaused, session.WorkspaceSuspended, session.WorkspaceStopped:
	default:
		return false, nil
	}
	const window = 500 // a message that is further back has been seen
	after := event.Seq(0)
	if st.HeadSeq > window {
		after = st.HeadSeq - window
	}
	asleep := true
	for e, err := range readAll(ctx, l.svc.cfg.Log, l.id, after) {
		if err != nil {
			return false, err
		}
		switch e.Type {
		case event.WorkspacePaused, event.WorkspaceSuspended, event.WorkspaceStopped, event.SessionImported:
			asleep = true
		case event.MessageUser:
			asleep = false
		}
	}
	return asleep, nil
}

// state returns what is known of the session.
func (l *live) state() session.State {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	return l.tracker.State()
}

// append stores events and follows them. by says whether the harness itself appends.
func (l *live) append(ctx context.Context, drafts ...event.Draft) ([]event.Event, error) {
	return l.appendAt(ctx, event.AnySeq, drafts...)
}

func (l *live) appendAt(ctx context.Context, expected event.Seq, drafts ...event.Draft) ([]event.Event, error) {
	who := actor.From(ctx).ID
	for i := range drafts {
		if drafts[i].ActorID == "" {
			drafts[i].ActorID = who
		}
		if drafts[i].ActorID == "" {
			drafts[i].ActorID = systemActor
		}
	}
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	var ends []event.Draft
	if expected == event.AnySeq {
		ends = l.starts.takeEnds()
	}
	if len(ends)+len(drafts) == 0 {
		return nil, nil
	}
	a := event.Append{Session: l.id, Lease: l.lease, Expected: expected, Events: append(slices.Clip(ends), drafts...)}
	stored, err := l.svc.cfg.Log.Append(ctx, a)
	if err != nil {
		l.starts.putEnds(ends)
		return nil, err
	}
	for _, e := range stored {
		if e.Type == event.ExecStarted || e.Type == event.ExecFinished || e.Type == event.ToolFinished {
			l.touch()
		}
	}
	// The events are durable: what follows must not depend on whether the caller still waits.
	ctx = context.WithoutCancel(ctx)
	if err := l.tracker.Apply(ctx, stored...); err != nil {
		l.svc.cfg.Logger.Error("cannot follow the log; reading it anew", "session", l.id, "error", err)
		t, lerr := session.Load(ctx, l.svc.cfg.Log, l.id)
		if lerr != nil {
			return nil, lerr
		}
		l.tracker = t
	}
	l.mu.Lock()
	close(l.bump)
	l.bump = make(chan struct{})
	l.mu.Unlock()
	return stored[len(ends):], nil
}

// systemActor signs what the runtime does by itself.
const systemActor id.Actor = "perdure"

// notify tells the harness, if there is one, that the log has moved.
func (l *live) notify() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// moved returns a channel that is closed at the next append.
func (l *live) moved() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bump
}

// operate runs f as the only operation on the workspace.
func (l *live) operate(ctx context.Context, f func() error) error {
	select {
	case <-l.ops:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { l.ops <- struct{}{} }()
	if gone := l.isGone(); gone != nil {
		return gone
	}
	st := l.state().Workspace.State
	if l.current() == nil && (st == session.WorkspaceRunning || st == session.WorkspacePaused) {
		if err := l.heal(context.WithoutCancel(ctx)); err != nil {
			l.svc.cfg.Logger.Error("cannot take up an operation that failed", "session", l.id, "error", err)
		}
	}
	return f()
}

// isGone returns session_not_found once the session has been deleted.
func (l *live) isGone() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// current returns the sandbox that runs the workspace, or nil.
func (l *live) current() sandbox.Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sandbox
}

// setSandbox installs a sandbox and watches over it.
func (l *live) setSandbox(sb sandbox.Sandbox) {
	l.mu.Lock()
	l.sandbox, l.cpu, l.frozen, l.inherited = sb, idle.Load{}, nil, false
	l.mu.Unlock()
	l.touch()
	if sb == nil {
		l.svc.idle.Drop(l.id)
		l.svc.timed.Drop(l.id)
		return
	}
	l.watch(sb)
	l.watchDisk(sb)
	l.hot()
	l.time()
}

// watch notices when the sandbox dies by itself.
func (l *live) watch(sb sandbox.Sandbox) {
	l.svc.goroutine(func(ctx context.Context) {
		st, err := sb.Wait(ctx)
		if ctx.Err() != nil {
			return
		}
		cause := st.Cause
		if err != nil {
			cause = err.Error()
		}
		err = l.operate(ctx, func() error {
			if l.current() != sb {
				return nil // it was put to sleep, or replaced
			}
			return l.lose(ctx, sb, cause)
		})
		if err != nil && !isStopping(err) && !isNotFound(err) {
			l.svc.cfg.Logger.Error("cannot record the loss of a sandbox", "session", l.id, "sandbox", sb.ID(), "error", err)
		}
	})
}

// lose records that the sandbox is dead, and removes what is left of it. Its files stay live.
func (l *live) lose(ctx context.Context, sb sandbox.Sandbox, cause string) error {
	if cause == "" {
		cause = "unknown"
	}
	_, err := l.append(ctx, event.Draft{Type: event.WorkspaceLost, ActorID: systemActor, Data: event.WorkspaceLostData{SandboxID: sb.ID(), Cause: cause}})
	if err != nil {
		l.setSandbox(nil) // nobody is to ask the dead one; the next operation tries again, see heal
		return err
	}
	l.svc.at("sandbox.lost")
	l.setSandbox(nil)
	l.notify()
	return l.svc.endSandbox(ctx, sb)
}

var errGone = errdefs.New(errdefs.NotFound, "session_not_found", "the session has been deleted")
