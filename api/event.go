package api

import (
	"encoding/json"
	"time"
)

// Event is one immutable entry in a session's log.
type Event struct {
	ID          string          `json:"id"`
	Seq         uint64          `json:"seq" doc:"Its position in the log; the first has 1, and there are no gaps."`
	Type        string          `json:"type" doc:"{domain}.{action}; the list is closed."`
	SessionID   string          `json:"session_id"`
	ActorID     string          `json:"actor_id"`
	CreatedAt   time.Time       `json:"created_at"`
	CausationID string          `json:"causation_id,omitempty"`
	Data        json.RawMessage `json:"data"`
	Hash        string          `json:"hash" doc:"Chains the log: over this event's canonical JSON and the hash of the one before."`
}

// Delta is a piece of a model's answer while it is written. It is not an event: the finished answer is.
type Delta struct {
	SessionID string `json:"session_id"`
	Kind      string `json:"kind" doc:"text, thinking or tool."`
	Text      string `json:"text"`
}

// StreamItem is what a stream carries: a durable event, or a delta. One of them is set.
type StreamItem struct {
	Event *Event
	Delta *Delta
}

// DeltaEvent is the SSE event name of a Delta. Durable events have the default name and, alone, an id: their seq.
const DeltaEvent = "delta"

// ErrorEvent is the SSE event name of a Problem that ends a stream.
const ErrorEvent = "error"

// SendMessages puts messages into a session, all or none.
type SendMessages struct {
	Messages        []Message `json:"messages" minItems:"1" nullable:"false"`
	ExpectedLastSeq *uint64   `json:"expected_last_seq,omitempty" doc:"Refuse with seq_conflict if the log has gone on since."`
}

// Message is what a user says to a session.
type Message struct {
	Text     string `json:"text" minLength:"1"`
	Delivery string `json:"delivery,omitempty" enum:"steer,queue,interrupt" default:"queue" doc:"steer: before the next model call. queue: as the next turn. interrupt: stop what is running first."`
}

// Timeline is what a session's model sees: parts of its own log and, for a fork, of its ancestors'.
type Timeline struct {
	SessionID   string       `json:"session_id"`
	LastSeq     uint64       `json:"last_seq"`
	Ranges      []Range      `json:"ranges" nullable:"false" doc:"In order; together they are the timeline."`
	Abandoned   []Range      `json:"abandoned" nullable:"false" doc:"Parts of this session's own log that rollbacks left behind."`
	Checkpoints []Checkpoint `json:"checkpoints" nullable:"false" doc:"On the timeline and off it, oldest first."`
}

// Range is a part of a log, both ends included.
type Range struct {
	SessionID string `json:"session_id"`
	FromSeq   uint64 `json:"from_seq"`
	ToSeq     uint64 `json:"to_seq"`
}
