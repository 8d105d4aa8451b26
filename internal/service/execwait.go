package service

import (
	"context"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

// waitExec returns when a command has ended. A command that is lost to the sandbox that ran it may go on in another: so its loss is
// believed only once no operation is at work on the workspace any more, and what that has left knows nothing better.
func (l *live) waitExec(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	for {
		sb := l.current()
		st, err := l.readerOf(sb).Wait(ctx, exec)
		if ctx.Err() != nil {
			return sandbox.ExecStatus{}, context.Cause(ctx)
		}
		if err == nil && st.State != sandbox.ExecLost {
			return st, nil
		}
		if serr := l.standStill(ctx); serr != nil {
			return sandbox.ExecStatus{}, serr
		}
		if l.current() != sb {
			continue
		}
		if sb == nil { // it may have been looked at before the log said that the workspace sleeps
			if now, nerr := l.reader().Status(ctx, exec); nerr == nil && now.State == sandbox.ExecRunning {
				continue
			}
		}
		return st, err
	}
}

// execStatus is a command's status. As in waitExec, a loss is looked at twice.
func (l *live) execStatus(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	st, err := l.reader().Status(ctx, exec)
	if err != nil || st.State != sandbox.ExecLost {
		return st, err
	}
	if err := l.standStill(ctx); err != nil {
		return st, err
	}
	return l.reader().Status(ctx, exec)
}

// standStill returns when no operation is at work on the workspace. An operation may have begun again by then.
func (l *live) standStill(ctx context.Context) error {
	select {
	case <-l.ops:
		l.ops <- struct{}{}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow records the end of a client's command.
func (l *live) follow(sb sandbox.Sandbox, exec id.Exec) {
	l.svc.goroutine(func(ctx context.Context) {
		st, err := sb.Execs().Wait(ctx, exec)
		if ctx.Err() != nil {
			return
		}
		if err != nil || st.State == sandbox.ExecLost {
			if l.standStill(ctx) != nil {
				return
			}
			if l.current() != sb && l.state().Workspace.State != session.WorkspaceLost {
				return // its sandbox was put to sleep or replaced: whoever wakes the workspace follows it again
			}
		}
		if err != nil {
			l.svc.cfg.Logger.Warn("cannot follow a command", "session", l.id, "exec", exec, "error", err)
			return
		}
		l.finishExec(ctx, st)
	})
}

// readerOf is the reader of a workspace that is run by sb.
func (l *live) readerOf(sb sandbox.Sandbox) execReader {
	if sb != nil {
		return sb.Execs()
	}
	return sleepingExecs{l}
}
