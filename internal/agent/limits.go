package agent

import (
	"context"
	"slices"
	"time"

	"perdure.dev/perdure/internal/event"
)

// The names of limits, as in the JSON of event.Limits.
const (
	limitSteps  = "steps"
	limitTokens = "total_tokens"
	limitCost   = "cost_micros"
	limitTime   = "turn_time_ns"
)

// withDefaults fills in what a session has not set itself.
func withDefaults(l, d event.Limits) event.Limits {
	if l.Steps == 0 {
		l.Steps = d.Steps
	}
	if l.TotalTokens == 0 {
		l.TotalTokens = d.TotalTokens
	}
	if l.CostMicros == 0 {
		l.CostMicros = d.CostMicros
	}
	if l.TurnTime == 0 {
		l.TurnTime = d.TurnTime
	}
	if l.ContextSize == 0 {
		l.ContextSize = d.ContextSize
	}
	return l
}

// checkLimits warns at 80 % and reports the limit that is reached, if any.
func (r *run) checkLimits(ctx context.Context) (reached *event.LimitData, err error) {
	turn := r.hist.view.Turn
	for _, l := range []event.LimitData{
		{Limit: limitSteps, Used: int64(turn.Steps), Max: int64(r.limits.Steps)},
		{Limit: limitTokens, Used: r.usage.Input + r.usage.Output, Max: r.limits.TotalTokens},
		{Limit: limitCost, Used: r.usage.CostMicros, Max: r.limits.CostMicros},
		{Limit: limitTime, Used: int64(r.turnAge()), Max: int64(r.limits.TurnTime)},
	} {
		switch {
		case l.Max <= 0:
		case l.Used >= l.Max:
			return &l, nil
		case l.Used*5 >= l.Max*4 && !r.hasWarned(l.Limit):
			if err := r.append(ctx, event.Draft{Type: event.LimitWarned, Data: l}); err != nil {
				return nil, err
			}
			r.warned[l.Limit] = true
		}
	}
	return nil, nil
}

// hasWarned reports whether a limit has been warned of: in this turn if it counts within a turn, else ever.
func (r *run) hasWarned(limit string) bool {
	switch limit {
	case limitSteps, limitTime:
		t := r.hist.view.Turn
		return t != nil && slices.Contains(t.Warned, limit)
	}
	return r.warned[limit]
}

func (r *run) turnAge() time.Duration {
	if t := r.hist.view.Turn; t != nil {
		return max(0, r.opt.Clock.Now().Sub(t.Started))
	}
	return 0
}
