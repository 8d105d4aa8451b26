package service

import (
	"context"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/session"
)

// IdleDefaults are what holds for sessions that say nothing else; zero means never. Only a session's own threshold suspends one whose
// driver keeps no memory: its processes would end.
type IdleDefaults struct {
	Pause, Suspend, Archive, Expire time.Duration
}

const (
	looksAtATime = 2               // how many sessions are put to sleep at the same time
	settleGrace  = time.Minute     // how long after a restart whoever worked in a session has to come back
	settleRetry  = 5 * time.Minute // after which a session is tried again that could not be put to sleep
	secondLook   = time.Second     // between the first two readings of a processor meter
)

// settled is what of the idle policy applies to a session.
type settled struct {
	idle.Policy
	archive, expire time.Duration
}

func (l *live) policy(ctx context.Context, st session.State) settled {
	return l.svc.policyOf(ctx, st.Spec)
}

func (s *Service) policyOf(ctx context.Context, spec event.Spec) settled {
	var own event.Idle
	if spec.Idle != nil {
		own = *spec.Idle
	}
	def := s.cfg.Idle
	if drv, err := s.driver(spec.Driver); err != nil || !drv.Capabilities(ctx).Memory {
		def.Suspend = 0
	}
	pick := func(own, def time.Duration) time.Duration {
		if own == 0 {
			own = def
		}
		return max(own, 0)
	}
	return settled{
		Policy:  idle.Policy{Pause: pick(own.PauseAfter, def.Pause), Suspend: pick(own.SuspendAfter, def.Suspend)},
		archive: pick(own.ArchiveAfter, def.Archive), expire: pick(own.ExpireAfter, def.Expire),
	}
}

// reasons say why the session is in use. What the log has open counts only while somebody is at it.
func (l *live) reasons(st session.State) []idle.Reason {
	var out []idle.Reason
	now := l.svc.cfg.Clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drive != nil {
		out = append(out, agentReasons(st, now)...)
	}
	if st.Workspace.State == session.WorkspaceRunning {
		for _, x := range st.Execs {
			if !x.Abandoned && !x.Background && !x.TTY {
				out = append(out, idle.Reason{Source: idle.Command, Detail: "command " + string(x.ID) + " is running", Since: x.Started})
			}
		}
		if l.cpu.Computing {
			out = append(out, idle.Reason{Source: idle.CPU, Detail: "processes are computing", Since: l.cpu.Since})
		}
	}
	for _, source := range []idle.Source{idle.Terminal, idle.Files, idle.Access, idle.Port} {
		if u := l.uses.now[source]; u != nil {
			out = append(out, idle.Reason{Source: source, Detail: detailOf(source, u.count), Since: u.since})
		}
	}
	return out
}

// agentReasons are those of a harness at work: what it does, or that it is about to do something.
func agentReasons(st session.State, now time.Time) []idle.Reason {
	var out []idle.Reason
	since := st.LastActivity
	if since.IsZero() {
		since = now
	}
	if st.OpenModel != nil && !st.OpenModel.Abandoned {
		out = append(out, idle.Reason{Source: idle.Model, Detail: "a model call is in flight", Since: since})
	}
	for _, t := range st.OpenTools {
		if t.Started && !t.Abandoned {
			out = append(out, idle.Reason{Source: idle.Tool, Detail: "tool " + t.Name + " is running", Since: since})
		}
	}
	if st.Turn != nil {
		out = append(out, idle.Reason{Source: idle.Turn, Detail: "a turn is in progress", Since: st.Turn.Started})
	} else if len(out) == 0 {
		out = append(out, idle.Reason{Source: idle.Turn, Detail: "the agent looks at the session", Since: now})
	}
	return out
}

// idleFacts are what the policy decides about.
func (l *live) idleFacts(st session.State) idle.Facts {
	f := idle.Facts{Paused: st.Workspace.State == session.WorkspacePaused, Active: st.LastActivity, Reasons: l.reasons(st)}
	if st.Life.Asked {
		f.Active = later(f.Active, st.Life.Moved)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Active = later(f.Active, l.uses.last)
	f.Active = later(f.Active, l.cpu.Last)
	return f
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// hot has the session looked at when something may be to do about it.
func (l *live) hot() {
	st := l.state()
	p := l.policy(l.svc.run, st)
	now := l.svc.cfg.Clock.Now()
	at := l.nextAge(st, p, now)
	if first := p.First(); first > 0 {
		at = sooner(at, now.Add(min(first, idle.LookEvery)))
	}
	if !at.IsZero() {
		l.svc.idle.Set(l.id, at)
	}
}

// sooner returns the earlier of two times, of which zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// look is the scheduler's look at a session. It returns when to look again; zero: when the session is hot again.
func (s *Service) look(ctx context.Context, sid id.Session) time.Time {
	s.mu.Lock()
	l := s.lives[sid]
	s.mu.Unlock()
	if l == nil || l.current() == nil || l.isGone() != nil {
		return time.Time{}
	}
	st := l.state()
	p := l.policy(ctx, st)
	now := s.cfg.Clock.Now()
	if again, done := l.age(ctx, st, p, now); done {
		return again
	}
	return sooner(l.settle(ctx, p, now), l.nextAge(l.state(), p, now))
}

// settle puts the session to sleep if nobody has used it for long enough, and otherwise says when to look again.
func (l *live) settle(ctx context.Context, p settled, now time.Time) time.Time {
	st := l.state()
	if l.adopted() && now.Before(l.svc.started.Add(settleGrace)) {
		return l.svc.started.Add(settleGrace)
	}
	measured := l.measure(ctx, st, p)
	step := p.Next(now, l.idleFacts(st))
	if step.Do == idle.Wait {
		return step.At
	}
	if !measured {
		return now.Add(secondLook)
	}
	select {
	case <-l.ops:
	default: // somebody operates on it
		return now.Add(secondLook)
	}
	defer func() { l.ops <- struct{}{} }()
	if !l.bar() {
		return now.Add(secondLook)
	}
	defer l.unbar()
	// Between the look and the bar somebody may have come and gone.
	st = l.state()
	step = p.Next(now, l.idleFacts(st))
	var err error
	why := "idle for " + period(step.After)
	switch {
	case l.isGone() != nil || l.current() == nil:
		return time.Time{}
	case step.Do == idle.Pause:
		if err = l.pause(ctx, why); err == nil {
			return p.Next(now, l.idleFacts(l.state())).At
		}
	case step.Do == idle.Suspend:
		if err = l.putToSleep(ctx, event.KindSuspend, why); err == nil {
			return time.Time{}
		}
	default:
		return step.At
	}
	if ctx.Err() == nil {
		l.svc.cfg.Logger.Warn("a session that nobody uses could not be put to sleep; this is tried again", "session", l.id, "error", err)
	}
	return now.Add(settleRetry)
}

// period writes a time for people, without the zeros of time.Duration.
func period(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if n := len(s) - len(zero) + 1; n > 0 && s[n-1:] == zero {
			s = s[:n]
		}
	}
	return s
}

// measure reads the processor meter, and reports whether what it says now is known by two readings.
func (l *live) measure(ctx context.Context, st session.State, p settled) bool {
	sb := l.current()
	if sb == nil || st.Workspace.State != session.WorkspaceRunning || p.First() <= 0 {
		return true
	}
	status, err := sb.Status(ctx)
	if err != nil {
		return true // whoever watches over it finds out why
	}
	pids := status.PIDs
	if len(pids) > 1 {
		pids = pids[1:] // the shim's own work is not the workspace's
	}
	used, at := l.svc.meter.Used(pids)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cpu.Note(used, at)
}

// adopted reports whether the sandbox is one that an earlier daemon left.
func (l *live) adopted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inherited
}

// expiredAt returns the error of a session that may not be awake any more.
func (l *live) expired(ctx context.Context) error {
	st := l.state()
	limit := l.policy(ctx, st).expire
	if limit <= 0 || st.Life.AwakeAt(l.svc.cfg.Clock.Now()) < limit {
		return nil
	}
	return errExpired(st, limit)
}

// expireWarns is the part of a session's time at which it is told.
const expireWarns = 0.8

func (l *live) nextAge(st session.State, p settled, now time.Time) time.Time {
	if p.expire <= 0 || st.Life.Since.IsZero() {
		return time.Time{}
	}
	left := p.expire - st.Life.AwakeAt(now)
	if !named(st.Warned, session.LimitExpire) {
		left -= time.Duration(float64(p.expire) * (1 - expireWarns))
	}
	return now.Add(max(left, 0))
}

func named(list []string, name string) bool {
	for _, n := range list {
		if n == name {
			return true
		}
	}
	return false
}

// age enforces how long a session may be awake: it is told before, and then saved and suspended, whatever goes on in it. It reports
// whether the session is not to be looked at any further.
func (l *live) age(ctx context.Context, st session.State, p settled, now time.Time) (again time.Time, done bool) {
	if p.expire <= 0 {
		return time.Time{}, false
	}
	awake := st.Life.AwakeAt(now)
	tell := func(what event.Type) error {
		_, err := l.append(ctx, event.Draft{Type: what, ActorID: systemActor, Data: event.LimitData{Limit: session.LimitExpire, Used: int64(awake), Max: int64(p.expire)}})
		return err
	}
	var err error
	switch {
	case awake >= p.expire:
		err = l.operate(ctx, func() error {
			if l.current() == nil {
				return nil
			}
			kind := event.KindSuspend
			if err := l.putToSleep(ctx, kind, "awake for "+period(p.expire)+" in all, its limit"); err != nil {
				return err
			}
			l.mu.Lock()
			l.asleep = true
			l.mu.Unlock()
			return tell(event.LimitReached)
		})
		if err == nil {
			return time.Time{}, true
		}
	case float64(awake) >= expireWarns*float64(p.expire) && !named(st.Warned, session.LimitExpire):
		err = tell(event.LimitWarned)
	}
	if err == nil {
		return time.Time{}, false
	}
	if ctx.Err() == nil && l.isGone() == nil {
		l.svc.cfg.Logger.Warn("a session could not be put to sleep at the end of its time; this is tried again", "session", l.id, "error", err)
	}
	return now.Add(secondLook * 10), true
}
