package service

import (
	"context"
	"reflect"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/idle"
)

// showIdle adds what keeps a workspace awake, and what becomes of it if nothing does.
func (l *live) showIdle(ctx context.Context, out *api.Session) {
	st, w := l.state(), &out.Workspace
	out.AwakeMS = st.Life.AwakeAt(l.svc.cfg.Clock.Now()).Milliseconds()
	f := l.idleFacts(st)
	select {
	case <-l.ops:
		l.ops <- struct{}{}
	default:
		f.Reasons = append(f.Reasons, idle.Reason{Source: idle.Operation, Detail: "the workspace is being started, moved or saved", Since: l.svc.cfg.Clock.Now()})
	}
	for _, r := range f.Reasons {
		w.IdleReasons = append(w.IdleReasons, api.IdleReason{Source: string(r.Source), Detail: r.Detail, Since: r.Since, MaySleep: r.MaySleep})
	}
	if l.current() == nil || idle.Busy(f.Reasons) {
		return
	}
	w.IdleSince = &f.Active
	pause, suspend := l.policy(ctx, st).Due(f)
	if !pause.IsZero() {
		w.PausesAt = &pause
	}
	if !suspend.IsZero() {
		w.SuspendsAt = &suspend
	}
}

func presentIdle(i *event.Idle) api.Idle {
	if i == nil {
		return api.Idle{}
	}
	return api.Idle{
		PauseAfterMS: toMS(i.PauseAfter), SuspendAfterMS: toMS(i.SuspendAfter), ArchiveAfterMS: toMS(i.ArchiveAfter), ExpireAfterMS: toMS(i.ExpireAfter),
	}
}

func toMS(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

func fromMS(ms int64) time.Duration {
	if ms < 0 {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// idleOf is what a session says itself; nil: nothing.
func idleOf(i api.Idle) *event.Idle {
	if i == (api.Idle{}) {
		return nil
	}
	return &event.Idle{
		PauseAfter: fromMS(i.PauseAfterMS), SuspendAfter: fromMS(i.SuspendAfterMS), ArchiveAfter: fromMS(i.ArchiveAfterMS), ExpireAfter: fromMS(i.ExpireAfterMS),
	}
}

// ConfigureSession changes what can be changed of a session. It wakes nothing.
func (s *Service) ConfigureSession(ctx context.Context, ref string, req api.ConfigureSession) (api.Session, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Session{}, err
	}
	l.configuring.Lock()
	defer l.configuring.Unlock()
	before := l.state().Spec.Configured()
	after := before
	if req.Idle != nil {
		i := presentIdle(&before.Idle)
		set(&i.PauseAfterMS, req.Idle.PauseAfterMS)
		set(&i.SuspendAfterMS, req.Idle.SuspendAfterMS)
		set(&i.ArchiveAfterMS, req.Idle.ArchiveAfterMS)
		set(&i.ExpireAfterMS, req.Idle.ExpireAfterMS)
		after.Idle = event.Idle{}
		if next := idleOf(i); next != nil {
			after.Idle = *next
		}
	}
	if req.Checkpoints != nil {
		if after.Checkpoints, err = checkpointsOf(changed(presentCheckpoints(before.Checkpoints), *req.Checkpoints)); err != nil {
			return api.Session{}, err
		}
	}
	if !reflect.DeepEqual(after, before) {
		if _, err := l.append(ctx, event.Draft{Type: event.SessionConfigured, Data: after}); err != nil {
			return api.Session{}, err
		}
		if l.current() != nil {
			l.hot()
			l.time()
		}
	}
	return s.GetSession(ctx, string(l.id))
}

// set takes over what was given.
func set[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}
