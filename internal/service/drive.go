package service

import (
	"context"
	"errors"
	"slices"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
)

// drive is a harness at work on a session.
type drive struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

var errHalted = errors.New("the session is being put to sleep or moved")

// kick makes sure that a harness looks at the session, if it has an agent and is not asleep.
func (l *live) kick() {
	l.notify()
	if l.state().Spec.Model == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drive != nil || l.held > 0 || l.asleep || l.gone != nil {
		return
	}
	d := &drive{done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(l.svc.run)
	d.cancel = cancel
	if l.svc.goroutine(func(context.Context) { l.work(ctx, d) }) {
		l.drive = d
	} else {
		cancel(errStopping)
	}
}

// wakeUp lets the harness run again after it was put to sleep.
func (l *live) wakeUp() {
	l.mu.Lock()
	l.asleep = false
	l.mu.Unlock()
	l.kick()
}

// work runs the harness until nothing is left to do.
func (l *live) work(ctx context.Context, d *drive) {
	defer close(d.done)
	defer d.cancel(nil)
	for {
		select {
		case <-l.changed: // what it stands for is seen by the Run that follows
		default:
		}
		head := l.state().HeadSeq
		err := l.svc.cfg.Harness.Run(ctx, host{l})
		if ctx.Err() != nil {
			err = nil
		}
		unread := false
		if err != nil {
			if unread = l.unread(head); unread || len(l.changed) > 0 {
				l.svc.cfg.Logger.Warn("the harness ended, and runs again for what came meanwhile", "session", l.id, "error", err)
			} else {
				l.fail(ctx, err)
			}
		}
		l.mu.Lock()
		if ctx.Err() != nil || len(l.changed) == 0 && !unread {
			l.drive = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// unread reports whether there is a message from after a position that no turn has taken up. A harness that failed may have taken the token
// that stood for it.
func (l *live) unread(after event.Seq) bool {
	return slices.ContainsFunc(l.state().Pending, func(p session.Pending) bool { return p.Session == l.id && p.Seq > after })
}

// fail records that a session cannot be driven. A new message tries again.
func (l *live) fail(ctx context.Context, cause error) {
	l.svc.cfg.Logger.Error("the harness ended", "session", l.id, "error", cause)
	if errdefs.CodeOf(cause) == event.CodeStaleLease {
		return // somebody else drives it now
	}
	_, err := l.append(ctx, event.Draft{Type: event.SessionFailed, ActorID: systemActor, Data: event.SessionFailedData{
		Code: errdefs.CodeOf(cause), Message: cause.Error(), Hint: errdefs.HintOf(cause),
	}})
	if err != nil {
		l.svc.cfg.Logger.Error("cannot record that the harness ended", "session", l.id, "error", err)
	}
}

// halt stops the harness and keeps it from starting until the returned function is called, which lets it go on.
func (l *live) halt() (release func()) {
	l.mu.Lock()
	l.held++
	d := l.drive
	l.mu.Unlock()
	if d != nil {
		d.cancel(errHalted)
		<-d.done
	}
	return func() {
		l.mu.Lock()
		l.held--
		l.mu.Unlock()
		l.kick() // what came meanwhile, unless the session was put to sleep
	}
}
