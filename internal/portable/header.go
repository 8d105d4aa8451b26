package portable

import (
	"time"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// Format is the version that this build writes. It reads every version up to it.
const Format = 1

// Kind is what a header says that it is of.
const Kind = "perdure-session"

// Header is perdure.json.
type Header struct {
	Kind       string     `json:"kind"`
	Format     int        `json:"format"`
	CreatedAt  time.Time  `json:"created_at"`
	Build      string     `json:"build"` // of the Perdure that wrote it
	Session    Session    `json:"session"`
	Logs       []Log      `json:"logs"`       // in the order in which they come
	Checkpoint Checkpoint `json:"checkpoint"` // what the session comes back from
	Layers     []id.Layer `json:"layers"`     // bottom first
	Memory     bool       `json:"memory"`     // RAM is in it
	Bytes      int64      `json:"bytes"`      // of the contents of all members that are to come, at most
}

// Session names the session.
type Session struct {
	ID   id.Session `json:"id"`
	Name string     `json:"name"`
	Goal string     `json:"goal,omitempty"`
	// Spec is what it is made to be, for those who look before they import. What counts is in the log.
	Spec event.Spec `json:"spec"`
}

// Log is one log of a session or of an ancestor, whose events go up to Events.
type Log struct {
	SessionID id.Session `json:"session_id"`
	Events    int        `json:"events"`
	HeadHash  string     `json:"head_hash"` // of the last of them, as in event.Hash
}

// Checkpoint names the cut.
type Checkpoint struct {
	ID           id.Checkpoint          `json:"id"`
	Message      string                 `json:"message,omitempty"`
	CutSeq       event.Seq              `json:"cut_seq"`
	CreatedAt    time.Time              `json:"created_at"`
	ManifestHash string                 `json:"manifest_hash"`
	MemoryBytes  int64                  `json:"memory_bytes"` // also where the RAM is left out
	Environment  checkpoint.Environment `json:"environment"`
}

// Part is a run of members that belong together, such as one layer.
type Part struct {
	Name    string `json:"name"`
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"` // of contents
	Hash    string `json:"hash"`
}

// Trailer is trailer.json.
type Trailer struct {
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Parts   []Part `json:"parts"` // in their order
}
