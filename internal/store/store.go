package store

import (
	"iter"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// The codes of a store's errors beside those of event.Log.
const (
	CodeCheckpointNotFound  = "checkpoint_not_found"
	CodeEventNotFound       = "event_not_found"
	CodeDataNewer           = "data_newer"
	CodeDataLocked          = "data_locked"
	CodeStoreClosed         = "store_closed"
	CodeIdempotencyMismatch = "idempotency_mismatch"  // the key was used with another body: 422
	CodeIdempotencyInFlight = "idempotency_in_flight" // the first request with the key is still running: 409
	CodeIdempotencyUnknown  = "idempotency_unknown"   // the daemon died during the first request with the key: 409
)

// Session is a session's row.
type Session struct {
	session.Summary
	LeaseOwner id.Lease         `json:"-"`
	Lease      event.Generation `json:"-"` // 0: nobody has held it yet
}

// Filter chooses sessions. The zero value chooses all that are not deleted.
type Filter struct {
	NamePrefix string
	Status     session.Status
	Parent     id.Session // forks of this session only
	After      id.Session // a cursor: sessions made after this one
	Limit      int        // at most MaxLimit; 0 means MaxLimit
}

// MaxLimit is the most rows that one call returns.
const MaxLimit = 1000

// Checkpoint is a checkpoint's row.
type Checkpoint struct {
	ID           id.Checkpoint           `json:"id"`
	SessionID    id.Session              `json:"session_id"`
	Kind         event.CheckpointKind    `json:"kind"`
	Message      string                  `json:"message,omitempty"`
	Keep         bool                    `json:"keep"`
	CutSeq       event.Seq               `json:"seq"` // the last event that the checkpoint contains
	ParentID     id.Checkpoint           `json:"parent_id,omitempty"`
	State        session.CheckpointState `json:"state"`
	Memory       bool                    `json:"memory"`
	Layers       []id.Layer              `json:"layers"`
	MemoryBytes  int64                   `json:"memory_bytes"`
	FileBytes    int64                   `json:"file_bytes"`
	PauseMS      float64                 `json:"pause_ms"`
	ManifestHash string                  `json:"manifest_hash"`
	FailCode     string                  `json:"fail_code,omitempty"`
	FailMessage  string                  `json:"fail_message,omitempty"`
	CreatedAt    time.Time               `json:"created_at"`
	Deleted      bool                    `json:"deleted,omitempty"`
}

// Deletion says what a deleted session left behind, and what is gone for good.
type Deletion struct {
	// Tombstone: the session's log is there still. Forks need it, until the last of them is deleted, or it could not be removed yet.
	Tombstone bool
	// Purged are the sessions whose logs are gone: this one, and tombstones that only it had kept.
	Purged []id.Session
	// Checkpoints can be restored no more. Their stored parts may be removed, but for layers that others share.
	Checkpoints []id.Checkpoint
}

// Log is the whole log of a session that comes from elsewhere.
type Log struct {
	Session id.Session
	// Events yields it from its first event on, each time anew.
	Events iter.Seq2[event.Event, error]
	// Buried: of an ancestor, kept for the forks that read its log, as that of a deleted session is.
	Buried bool
}

// Answer is the stored answer to a request with an idempotency key.
type Answer struct {
	Status int
	Body   []byte
}
