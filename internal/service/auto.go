package service

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/tool"
)

// AutoDefaults say when checkpoints are taken of sessions that say nothing else, and which stay.
type AutoDefaults struct {
	Turns, Risky bool
	Risks        tool.Risks
	Every        time.Duration // 0: never
	Keep         checkpoint.Retention
}

// keepLast is how many automatic checkpoints of each kind stay where nobody says anything else.
const keepLast = 3

// Auto returns the usual defaults with what is given. Errors: risk_invalid, checkpoint_interval.
func Auto(given *api.ConfigureCheckpoints) (AutoDefaults, error) {
	usual := api.Checkpoints{Turns: event.SwitchOn, Risky: event.SwitchOn, RiskyCalls: tool.DefaultRisks(), KeepLast: keepLast, KeepHourly: 6, KeepDaily: 3}
	c := usual
	if given != nil {
		c = changed(c, *given)
	}
	if len(c.RiskyCalls) == 0 {
		c.RiskyCalls = usual.RiskyCalls
	}
	e, err := checkpointsOf(c)
	if err != nil {
		return AutoDefaults{}, err
	}
	risks, err := tool.ParseRisks(e.RiskyCalls)
	return AutoDefaults{
		Turns: e.Turns == event.SwitchOn, Risky: e.Risky == event.SwitchOn, Risks: risks, Every: max(e.Every, 0),
		Keep: checkpoint.Retention{Last: max(e.KeepLast, 0), Hourly: max(e.KeepHourly, 0), Daily: max(e.KeepDaily, 0)},
	}, err
}

// autoPolicy is what of it applies to a session.
type autoPolicy struct {
	turns, risky bool
	risks        tool.Risks
	every        time.Duration
	keep         checkpoint.Retention
}

func (s *Service) autoPolicy(spec event.Spec) autoPolicy {
	def := s.cfg.Auto
	p := autoPolicy{def.Turns, def.Risky, def.Risks, def.Every, def.Keep}
	own := spec.Checkpoints
	if own == nil {
		return p
	}
	on := func(def bool, own string) bool { return own == event.SwitchOn || own == "" && def }
	p.turns, p.risky = on(p.turns, own.Turns), on(p.risky, own.Risky)
	p.every = max(cmp.Or(own.Every, p.every), 0)
	p.keep = checkpoint.Retention{
		Last: max(cmp.Or(own.KeepLast, p.keep.Last), 0), Hourly: max(cmp.Or(own.KeepHourly, p.keep.Hourly), 0), Daily: max(cmp.Or(own.KeepDaily, p.keep.Daily), 0),
	}
	if own.RiskyCalls != nil {
		// They were checked when they were set; an older build that knows less of expressions takes none for risky that it cannot read.
		p.risks, _ = tool.ParseRisks(own.RiskyCalls)
	}
	return p
}

// changes tells whether a workspace can have changed since its last checkpoint. Guarded by live.mu.
//
// Whoever gets at the sandbox is counted, when he begins and when he ends, and so are commands. Processes that run on by themselves show by the
// processor time that they take; one that takes next to none, and still changes something, is missed. So an automatic checkpoint may be left out by
// this, and nothing else may; before a risky call, none at all may have been taken.
type changes struct {
	touches uint64
	saved   uint64 // touches at the last checkpoint; 0: there was none since the daemon knows of the sandbox
	used    time.Duration
	at      time.Time // when used was read
}

// touch counts that somebody gets at the workspace.
func (l *live) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes.touches++
}

// seen is called before a checkpoint, saved after it.
func (l *live) seen() changes {
	used, at := l.processorTime()
	l.mu.Lock()
	defer l.mu.Unlock()
	return changes{touches: l.changes.touches, used: used, at: at}
}

func (l *live) saved(seen changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes.saved, l.changes.used, l.changes.at = seen.touches, seen.used, seen.at
}

// computes is the part of a processor that counts as work, if processes have taken that much since the last checkpoint.
const computes = 0.05

// mayDiffer reports whether the workspace may have changed since the last checkpoint. Where it is strict, no processor time is little.
func (l *live) mayDiffer(st session.State, strict bool) bool {
	if len(st.Execs) > 0 { // abandoned ones too: a copy of their processes may be running
		return true
	}
	used, at := l.processorTime()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.changes
	took := used - w.used
	span := at.Sub(w.at)
	if w.saved != w.touches || len(l.uses.now) > 0 || at.IsZero() || took < 0 {
		return true
	}
	if strict {
		return took > 0 || span <= 0 // the same reading says nothing
	}
	return took > 0 && float64(took) >= computes*float64(span)
}

// processorTime is how much the sandbox has used.
func (l *live) processorTime() (time.Duration, time.Time) {
	sb := l.current()
	if sb == nil {
		return 0, time.Time{}
	}
	status, err := sb.Status(l.svc.run)
	if err != nil {
		return 0, time.Time{}
	}
	pids := status.PIDs
	if len(pids) > 1 {
		pids = pids[1:] // without the shim
	}
	return l.svc.meter.Used(pids)
}

// autosave takes a checkpoint, if the workspace runs and may have changed. That it fails is told and stops nobody; it returns an error only when
// ctx has ended.
func (l *live) autosave(ctx context.Context, kind event.CheckpointKind, message string) error {
	st := l.state()
	if st.Workspace.State != session.WorkspaceRunning || l.current() == nil || !l.mayDiffer(st, kind == event.KindRisky) {
		return nil
	}
	if l.portsOpen() {
		if kind == event.KindRisky { // which somebody may count on
			l.missed(ctx, kind, errdefs.New(errdefs.Conflict, "ports_open", "a connection to a forwarded port is open, which a checkpoint would cut"))
		}
		return nil
	}
	err := l.operate(ctx, func() error {
		if l.state().Workspace.State != session.WorkspaceRunning || l.current() == nil {
			return nil
		}
		l.svc.at("autosave")
		_, err := l.take(ctx, cutting{kind: kind, message: message})
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil || l.isGone() != nil {
		return nil
	}
	l.svc.cfg.Logger.Warn("an automatic checkpoint could not be taken", "session", l.id, "kind", kind, "error", err)
	l.missed(ctx, kind, err)
	return nil
}

// missed records that a checkpoint is missing, and why.
func (l *live) missed(ctx context.Context, kind event.CheckpointKind, why error) {
	_, err := l.append(ctx, event.Draft{Type: event.CheckpointMissed, ActorID: systemActor, Data: event.CheckpointMissedData{
		Kind: kind, Code: errdefs.CodeOf(why), Message: why.Error(),
	}})
	if err != nil && ctx.Err() == nil {
		l.svc.cfg.Logger.Warn("cannot record that a checkpoint is missing", "session", l.id, "error", err)
	}
}

// portsOpen reports whether connections to forwarded ports are open, which a checkpoint would cut.
func (l *live) portsOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uses.now[idle.Port] != nil
}

// beforeCalls takes a checkpoint before a harness starts calls that are risky.
func (l *live) beforeCalls(ctx context.Context, drafts []event.Draft) error {
	for _, d := range drafts {
		started, ok := d.Data.(event.ToolStartedData)
		if !ok {
			continue
		}
		st := l.state()
		p := l.svc.autoPolicy(st.Spec)
		if !p.risky {
			return nil
		}
		for _, t := range st.OpenTools {
			if t.CallID == started.CallID && !t.Abandoned && p.risks.Match(t.Name, t.Arguments) {
				return l.autosave(ctx, event.KindRisky, "before "+t.Name)
			}
		}
	}
	return nil
}

// afterTurn takes a checkpoint when a harness has ended a turn.
func (l *live) afterTurn(ctx context.Context, drafts []event.Draft) {
	for _, d := range drafts {
		if d.Type == event.TurnFinished && l.svc.autoPolicy(l.state().Spec).turns {
			_ = l.autosave(ctx, event.KindTurn, "") // it fails only with ctx, which whoever appends looks at himself
			return
		}
	}
}

// time has checkpoints taken by the clock, if the session wants that.
func (l *live) time() {
	if every := l.svc.autoPolicy(l.state().Spec).every; every > 0 {
		l.svc.timed.Set(l.id, l.svc.cfg.Clock.Now().Add(every))
	}
}

// saveOnTime is the scheduler's look at a session. It returns when the next checkpoint is due; zero: never.
func (s *Service) saveOnTime(ctx context.Context, sid id.Session) time.Time {
	s.mu.Lock()
	l := s.lives[sid]
	s.mu.Unlock()
	if l == nil || l.current() == nil || l.isGone() != nil {
		return time.Time{}
	}
	every := s.autoPolicy(l.state().Spec).every
	if every <= 0 || l.autosave(ctx, event.KindTimer, "") != nil {
		return time.Time{}
	}
	return s.cfg.Clock.Now().Add(every)
}

func presentCheckpoints(c *event.Checkpoints) api.Checkpoints {
	if c == nil {
		return api.Checkpoints{}
	}
	return api.Checkpoints{
		Turns: c.Turns, Risky: c.Risky, RiskyCalls: c.RiskyCalls, EveryMS: toMS(c.Every),
		KeepLast: c.KeepLast, KeepHourly: c.KeepHourly, KeepDaily: c.KeepDaily,
	}
}

// leastEvery is the shortest time between two checkpoints by the clock.
const leastEvery = 10 * time.Second

// checkpointsOf is what a session says itself; nil: nothing. Errors: risk_invalid, checkpoint_interval.
func checkpointsOf(c api.Checkpoints) (*event.Checkpoints, error) {
	if reflect.DeepEqual(c, api.Checkpoints{}) {
		return nil, nil
	}
	if _, err := tool.ParseRisks(c.RiskyCalls); err != nil {
		return nil, err
	}
	every := fromMS(c.EveryMS)
	if every > 0 && every < leastEvery {
		return nil, errdefs.New(errdefs.Invalid, "checkpoint_interval", "checkpoints every %s are too many", every).
			WithHint("the shortest time between two is %s", leastEvery)
	}
	return &event.Checkpoints{
		Turns: c.Turns, Risky: c.Risky, RiskyCalls: c.RiskyCalls, Every: every, KeepLast: c.KeepLast, KeepHourly: c.KeepHourly, KeepDaily: c.KeepDaily,
	}, nil
}

// changed is c with what is given.
func changed(c api.Checkpoints, by api.ConfigureCheckpoints) api.Checkpoints {
	set(&c.Turns, by.Turns)
	set(&c.Risky, by.Risky)
	set(&c.RiskyCalls, by.RiskyCalls)
	set(&c.EveryMS, by.EveryMS)
	set(&c.KeepLast, by.KeepLast)
	set(&c.KeepHourly, by.KeepHourly)
	set(&c.KeepDaily, by.KeepDaily)
	if len(c.RiskyCalls) == 0 {
		c.RiskyCalls = nil // the daemon's
	}
	return c
}
