// Package id makes and checks the prefixed, time-sortable identifiers of Perdure, such as sess_01j9z3…
//
// The part after the prefix is a ULID in lower case (https://github.com/ulid/spec): 48 bits of milliseconds and 80 bits of
// randomness, monotonic within a process. Each kind of thing has a named type, so that the compiler keeps them apart.
package id

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// The identifier types. Their zero value means "none".
type (
	Session    string
	Event      string
	Workspace  string
	Sandbox    string
	Checkpoint string
	Layer      string
	Exec       string
	Actor      string
	Artifact   string
	Lease      string
)

// source yields monotonic ULIDs: two ids of one millisecond sort in the order of their making.
type source struct {
	mu      sync.Mutex // guards entropy
	entropy *ulid.MonotonicEntropy
}

var process = &source{entropy: ulid.Monotonic(rand.Reader, 0)}

func (s *source) next(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return prefix + "_" + strings.ToLower(ulid.MustNew(ulid.Timestamp(time.Now()), s.entropy).String())
}

// NewSession returns a new session id.
func NewSession() Session { return Session(process.next("sess")) }

// NewEvent returns a new event id.
func NewEvent() Event { return Event(process.next("evt")) }

// EventOf returns the event id that follows from a string. It is as unique as that, and does not sort by time.
func EventOf(s string) Event {
	var u ulid.ULID
	sum := sha256.Sum256([]byte(s))
	copy(u[:], sum[:])
	return Event("evt_" + strings.ToLower(u.String()))
}

// NewWorkspace returns a new workspace id.
func NewWorkspace() Workspace { return Workspace(process.next("ws")) }

// NewSandbox returns a new sandbox id.
func NewSandbox() Sandbox { return Sandbox(process.next("sbx")) }

// NewCheckpoint returns a new checkpoint id.
func NewCheckpoint() Checkpoint { return Checkpoint(process.next("ckpt")) }

// NewLayer returns a new file layer id.
func NewLayer() Layer { return Layer(process.next("lyr")) }

// NewExec returns a new exec id.
func NewExec() Exec { return Exec(process.next("exec")) }

// NewArtifact returns a new artifact id.
func NewArtifact() Artifact { return Artifact(process.next("art")) }

// NewLease returns a new id for the holder of leases.
func NewLease() Lease { return Lease(process.next("own")) }

// Valid reports whether s is a well-formed identifier with the given prefix ("sess", "ckpt", …).
func Valid(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || rest != strings.ToLower(rest) {
		return false
	}
	_, err := ulid.ParseStrict(strings.ToUpper(rest))
	return err == nil
}

// MaxExternal is the longest exec id that a client may choose, in bytes.
const MaxExternal = 128

// ValidExternal reports whether s may be used as an exec id chosen by a client: 1 to MaxExternal bytes of letters, digits,
// '_', '-' and '.', not starting with a dot. Such ids become file names in the spool.
func ValidExternal(s string) bool {
	if s == "" || len(s) > MaxExternal || s[0] == '.' {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}
