package session

import (
	"encoding/json"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// State is all that is known about a session. It holds no message bodies: its size depends on what is open, not on the
// length of the log.
type State struct {
	Summary
	Facts
	View
}

// Facts is what a rollback does not undo, folded over the whole log of this session.
type Facts struct {
	Checkpoints    []Checkpoint  `json:"checkpoints,omitempty"`     // those not deleted, oldest first
	LastCheckpoint id.Checkpoint `json:"last_checkpoint,omitempty"` // the newest that exists
	// Undo is the checkpoint that undoes the last rollback, or "" when there is none to undo.
	Undo    id.Checkpoint `json:"undo,omitempty"`
	Execs   []Exec        `json:"execs,omitempty"`   // commands of clients that have no exec.finished yet
	Warned  []string      `json:"warned,omitempty"`  // limits of which a warning has been given
	Reached []string      `json:"reached,omitempty"` // limits that have stopped it at some time
	Life    Life          `json:"life,omitzero"`
}

// CheckpointState says how far a checkpoint got.
type CheckpointState string

// The checkpoint states that a log knows. One that failed is not offered.
const (
	CheckpointWarm    CheckpointState = "warm"
	CheckpointDurable CheckpointState = "durable"
	CheckpointFailed  CheckpointState = "failed"
)

// Checkpoint is what State remembers of a checkpoint.
type Checkpoint struct {
	ID      id.Checkpoint        `json:"id"`
	Kind    event.CheckpointKind `json:"kind"`
	Message string               `json:"message,omitempty"`
	CutSeq  event.Seq            `json:"cut_seq"`
	State   CheckpointState      `json:"state"`
	Keep    bool                 `json:"keep,omitempty"`
}

// Exec is a command of a client that is not known to have ended.
type Exec struct {
	ID      id.Exec   `json:"id"`
	Seq     event.Seq `json:"seq"`
	Started time.Time `json:"started"`
	// TTY: it has a terminal. Background: nobody waits for it.
	TTY        bool `json:"tty,omitempty"`
	Background bool `json:"background,omitempty"`
	// Abandoned: started in a range that a rollback has left, so that no such process exists any more, or started before
	// the cut, so that the restored copy has it but nobody waits for it.
	Abandoned bool `json:"abandoned,omitempty"`
}

// View is what is open on the timeline, folded over the timeline's events only.
type View struct {
	Seq       event.Seq  `json:"view_seq"`    // of the last event folded
	Log       ID         `json:"view_log"`    // whose log that seq counts in
	Events    int        `json:"view_events"` // on the timeline so far
	Pending   []Pending  `json:"pending,omitempty"`
	Turn      *Turn      `json:"current_turn,omitempty"`
	OpenTools []OpenTool `json:"open_tools,omitempty"` // in the order of their requests
	OpenModel *OpenModel `json:"open_model,omitempty"`
	KeepFrom  *Position  `json:"keep_from,omitempty"` // nil: nothing has been trimmed
	// Finished and Canceling are about the turn in progress or the last one.
	Finished  *event.SessionFinishedData `json:"finished,omitempty"`  // the last result, until the next turn starts
	Canceling bool                       `json:"canceling,omitempty"` // the turn in progress was asked to stop
}

// Position is a place in the log of a session or of one of its ancestors.
type Position struct {
	Session ID        `json:"session"`
	Seq     event.Seq `json:"seq"`
}

// Pending is a user message that no turn has taken up yet.
type Pending struct {
	Position
	EventID  id.Event       `json:"event_id"`
	Delivery event.Delivery `json:"delivery"`
	// Inherited: it already waited at the cut that this life began with.
	Inherited bool `json:"inherited,omitempty"`
}

// Turn is a turn in progress.
type Turn struct {
	Position
	EventID  id.Event    `json:"event_id"`
	Started  time.Time   `json:"started"`
	Messages []event.Seq `json:"messages"`
	Steps    int         `json:"steps"` // model requests so far, repeated attempts not counted
	Usage    event.Usage `json:"usage"`
	Warned   []string    `json:"warned,omitempty"` // limits of which a warning has been given during it
	// Abandoned: it was open at the cut that this life began with. It is to be closed, or taken up as a new turn.
	Abandoned bool `json:"abandoned,omitempty"`
}

// OpenModel is a model request without an answer.
type OpenModel struct {
	Position
	EventID   id.Event `json:"event_id"`
	Attempt   int      `json:"attempt"`
	Abandoned bool     `json:"abandoned,omitempty"`
}

// OpenTool is a tool call without a result. An entry without Requested is a call that a finished message asks for and that
// has not been logged as tool.requested yet.
type OpenTool struct {
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Cut       bool            `json:"cut,omitempty"`
	Message   Position        `json:"message"`             // the message.agent event that asks for it
	Requested id.Event        `json:"requested,omitempty"` // the tool.requested event
	Started   bool            `json:"started,omitempty"`   // the intent is logged: it may have run
	ExecID    id.Exec         `json:"exec_id,omitempty"`   // what it runs as, from tool.started
	// Abandoned: it was open at the cut that this life began with. Close it as interrupted (if Started: unknown or
	// interrupted); never run it, never collect it.
	Abandoned bool `json:"abandoned,omitempty"`
}
