// Package event defines the append-only log of a session: the envelope, the closed list of event types, their payloads, and
// the Log interface.
//
// # Guarantees
//
//   - Seq starts at 1 and has no gaps within a session.
//   - Append is atomic: all events of one call are stored, or none. When it returns without error they are on disk.
//   - An append with a stale lease generation, or with an expected seq that is not the head, is refused and changes nothing.
//   - Each event carries the hash of the one before (see Hash), so that a log cannot be changed unseen.
//   - A subscription yields every event after its cursor exactly once, in order, also across the switch from stored to live.
//   - Nothing is ever deleted from a log, except with its whole session. Rollback appends.
package event

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"perdure.dev/perdure/internal/id"
)

// Seq is the position of an event in its session's log. The first event has 1; 0 is the position before it.
type Seq uint64

// Generation counts the holders of a session's lease. A later holder has a higher one.
type Generation uint64

// Event is one immutable entry in a session's log.
type Event struct {
	ID          id.Event        `json:"id"`
	Seq         Seq             `json:"seq"`
	Type        Type            `json:"type"`
	SessionID   id.Session      `json:"session_id"`
	ActorID     id.Actor        `json:"actor_id"`
	CreatedAt   time.Time       `json:"created_at"` // UTC, RFC 3339 with at most microseconds
	CausationID id.Event        `json:"causation_id,omitempty"`
	Data        json.RawMessage `json:"data"`
	Hash        string          `json:"hash"` // lower-case hex; see Hash
}

// Draft is an event before it is appended: the log fills in seq, time and hash.
type Draft struct {
	ID          id.Event // chosen by the caller where others must refer to it beforehand; empty: the log makes one
	Type        Type
	ActorID     id.Actor
	CausationID id.Event
	Data        any // a payload struct of this package, or json.RawMessage
}

// AnySeq as Append.Expected means that the caller does not mind where its events land.
const AnySeq = ^Seq(0)

// Append is one atomic addition to a session's log.
type Append struct {
	Session  id.Session
	Lease    Generation // from Log.Acquire; for a log's first event: 0
	Expected Seq        // the head that the caller has seen, or AnySeq
	Events   []Draft    // at least one
}

// Head is the end of a session's log.
type Head struct {
	Seq  Seq
	Hash string // the last event's hash; "" for an empty log
}

// Log is the store of events.
//
// Errors carry these codes: session_not_found, stale_lease, seq_conflict, name_taken, invalid_event, log_corrupt,
// disk_full, unknown_cursor.
type Log interface {
	// Append stores events durably and returns them as stored. The first append to a session must start with a
	// session.created event and Expected 0; it creates the session's row.
	Append(ctx context.Context, a Append) ([]Event, error)
	// Read returns up to limit events after the cursor, in order. Fewer than limit means that the end was reached.
	Read(ctx context.Context, session id.Session, after Seq, limit int) ([]Event, error)
	// Head returns the end of the log.
	Head(ctx context.Context, session id.Session) (Head, error)
	// Subscribe yields the events after the cursor, stored ones first, then live ones, until ctx ends or the session is
	// deleted. A cursor beyond the head fails with unknown_cursor. A slow reader is never dropped: it reads from the store.
	Subscribe(ctx context.Context, session id.Session, after Seq) iter.Seq2[Event, error]
	// Acquire makes owner the holder of the session's lease and returns the new generation. Acquiring a lease that the
	// same owner already holds returns the current generation.
	Acquire(ctx context.Context, session id.Session, owner id.Lease) (Generation, error)
}
