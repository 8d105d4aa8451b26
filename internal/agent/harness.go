package agent

import (
	"context"
	"iter"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/tool"
)

// Harness is what thinks for a session: the built-in loop, or a foreign agent.
type Harness interface {
	// Run drives the session until there is nothing left to do, and returns nil. It first repairs what an earlier Run left
	// open. The caller runs one Run per session at a time, and runs it again whenever something was appended afterwards:
	// if Host.Changed has a token when Run returns, Run must be called again.
	//
	// When ctx ends, Run returns its cause soon without appending anything: commands in the sandbox go on, and the next Run
	// collects them. That is how a daemon stops; to stop the work itself, append session.canceled. An error from
	// Host.Append (such as stale_lease) also ends Run at once.
	Run(ctx context.Context, host Host) error
}

// Host is one session's side of the runtime. The service implements it. Its methods may be called at the same time.
type Host interface {
	// Session is the session that this host is bound to.
	Session() id.Session
	// Append stores drafts atomically and durably under the session's lease, wherever the head is, and returns them as
	// stored. Others (users, checkpoints) may have appended in between. A draft with an id that the log already holds in this
	// session need not be accepted; the harness never sends one.
	Append(ctx context.Context, drafts ...event.Draft) ([]event.Event, error)
	// State is what is known of the session now: its spec, goal, usage over its whole life, and the limits already warned of.
	State(ctx context.Context) (session.State, error)
	// Timeline yields what the session remembers, oldest first: for a fork the ancestors' events up to the cut, then its own,
	// without the ranges that rollbacks left. It yields session.rolled_back events themselves, and the own session.created.
	Timeline(ctx context.Context) iter.Seq2[event.Event, error]
	// Events yields the session's own log after a position, as far as it goes now.
	Events(ctx context.Context, after event.Seq) iter.Seq2[event.Event, error]
	// Changed receives a token when somebody else has appended to the log. It must have a buffer of one, so that a token
	// waits for a harness that is not listening; tokens may be merged, and spare ones do no harm.
	Changed() <-chan struct{}
	// Sandbox returns the running sandbox of the workspace and wakes it first where needed.
	Sandbox(ctx context.Context) (sandbox.Sandbox, error)
	// Checkpoint takes a checkpoint of kind agent of the session, in the middle of the turn. It appends checkpoint.created.
	Checkpoint(ctx context.Context, message string) (event.CheckpointCreatedData, error)
	// Artifacts keeps what is too long for the model.
	Artifacts() tool.Artifacts
	// Delta shows observers a part of the answer that is on its way. It must not block. Lossy.
	Delta(d Delta)
}

// Delta is a part of a streaming answer, for observers. It is not an event: the finished message is.
type Delta struct {
	Request id.Event `json:"request_id"` // the model.requested event that it answers
	model.Delta
}
