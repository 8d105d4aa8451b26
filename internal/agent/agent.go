package agent

import (
	"context"
	"log/slog"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/tool"
)

// Actor is the actor id of what the built-in agent appends.
const Actor id.Actor = "agent"

// Options make an Agent. Only Models is required.
type Options struct {
	Models model.Registry
	Prices model.Prices // nil: model.DefaultPrices
	Tools  tool.Set     // nil: tool.Default
	Clock  clock.Clock  // nil: the machine's
	Logger *slog.Logger // nil: none
	Retry  model.Policy // zero: model.DefaultPolicy
	// Limits hold where a session's own are zero. Zero here too means no limit.
	Limits event.Limits
	// Home is the home directory inside workspaces; "" means the one that a workspace has.
	Home string
	// MaxOutput is how many bytes of a tool's output the model sees; 0 means tool.DefaultMaxOutput.
	MaxOutput int
	// Grace is how long a command that is canceled may take to react to SIGINT before it is killed; 0 means 2 s.
	Grace time.Duration
}

// Agent is the built-in harness. One Agent serves all sessions.
type Agent struct{ opt Options }

var _ Harness = (*Agent)(nil)

// New returns the built-in harness.
func New(o Options) *Agent {
	if o.Prices == nil {
		o.Prices = model.DefaultPrices()
	}
	if o.Tools == nil {
		o.Tools = tool.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Retry.Attempts == 0 {
		o.Retry = model.DefaultPolicy()
	}
	if o.Grace == 0 {
		o.Grace = 2 * time.Second
	}
	return &Agent{opt: o}
}

// Run drives the session; see Harness.
//
// Each round looks at the log alone and does the one thing that comes next, so that a Run that continues after a crash and
// one that never stopped are the same code.
func (a *Agent) Run(ctx context.Context, host Host) error {
	r := &run{opt: a.opt, host: host, log: a.opt.Logger.With("session", host.Session())}
	if err := r.load(ctx); err != nil {
		return err
	}
	if r.spec.Model == "" {
		return nil // a session without an agent
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.sync(ctx); err != nil {
			return err
		}
		more, err := r.next(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// next does the one thing that comes next, and reports whether there was one.
func (r *run) next(ctx context.Context) (bool, error) {
	v := &r.hist.view
	switch {
	case r.hist.abandoned():
		return true, r.closeAbandoned(ctx)
	case v.Turn == nil:
		if !r.hist.triggered() {
			return false, nil
		}
		return true, r.startTurn(ctx)
	case r.hist.stopAsked() != "":
		return true, r.stopTurn(ctx, r.hist.stopAsked())
	case len(v.OpenTools) > 0:
		return true, r.call(ctx, v.OpenTools[0])
	case r.hist.answered():
		return true, r.append(ctx, r.turnFinished(reasonAnswered))
	}
	return true, r.ask(ctx)
}

// run is one Run: a session's history and what it takes to go on. It is for one goroutine.
type run struct {
	opt      Options
	host     Host
	log      *slog.Logger
	spec     event.Spec
	name     string
	limits   event.Limits
	usage    event.Usage     // over the session's whole life, abandoned ranges included
	warned   map[string]bool // limits on the whole session that have been warned of
	provider model.Provider  // nil until first needed
	hist     *history
	window   int // a window smaller than the configured one that the model has insisted on; 0: none
}

// load reads the session from the start of its timeline.
func (r *run) load(ctx context.Context) error {
	st, err := r.host.State(ctx)
	if err != nil {
		return err
	}
	r.spec, r.name, r.usage = st.Spec, st.Name, st.Usage
	r.limits = withDefaults(st.Spec.Limits, r.opt.Limits)
	r.warned = map[string]bool{}
	for _, w := range st.Warned {
		r.warned[w] = true
	}
	r.hist = newHistory(r.host.Session())
	for e, err := range r.host.Timeline(ctx) {
		if err != nil {
			return err
		}
		if err := r.hist.fold(e); err != nil {
			return err
		}
	}
	// The state may be older or newer than the end of the timeline that was read: what lies between is counted by fold.
	for e, err := range r.host.Events(ctx, st.HeadSeq) {
		if err != nil {
			return err
		}
		if e.Seq <= r.hist.cursor {
			r.count(e)
		}
	}
	return nil
}

// sync takes in what others have appended.
func (r *run) sync(ctx context.Context) error {
	for e, err := range r.host.Events(ctx, r.hist.cursor) {
		if err != nil {
			return err
		}
		if e.Type == event.SessionRolledBack || e.Type == event.SessionImported {
			return r.load(ctx)
		}
		if err := r.take(e); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) take(e event.Event) error {
	if e.Seq <= r.hist.cursor {
		return nil
	}
	r.count(e)
	return r.hist.fold(e)
}

func (r *run) count(e event.Event) {
	if e.Type != event.ModelResponded {
		return
	}
	if d, err := event.DecodeData[event.ModelRespondedData](e); err == nil {
		r.usage.Input += d.Usage.Input
		r.usage.Output += d.Usage.Output
		r.usage.CostMicros += d.Usage.CostMicros
	}
}

// append stores drafts and takes them in, with whatever others have put before them.
func (r *run) append(ctx context.Context, drafts ...event.Draft) error {
	for i := range drafts {
		drafts[i].ActorID = Actor
	}
	stored, err := r.host.Append(ctx, drafts...)
	if err != nil {
		return err
	}
	if len(stored) > 0 && stored[0].Seq != r.hist.cursor+1 {
		return r.sync(ctx)
	}
	for _, e := range stored {
		if err := r.take(e); err != nil {
			return err
		}
	}
	return nil
}
