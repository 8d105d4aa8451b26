package wire

import (
	"encoding/json"
	"time"
)

// Hello is the guest's first frame on a connection.
type Hello struct {
	Version int
	Guest   string      // random, of this guest process; a restored copy has the same
	PID     int         // of the guest inside
	Execs   []HelloExec // whatever the host may still have to hear about
}

// HelloExec is one command that the guest holds.
type HelloExec struct {
	Spec      ExecSpec // without Code and Env
	PID       int
	StartedAt time.Time
	Stdout    StreamState
	Stderr    StreamState
	Exited    bool // an Exit frame follows, or came before
}

// StreamState says which bytes of a stream the guest can still send.
type StreamState struct {
	Start    int64 // the first retained byte: all before it was acknowledged
	Produced int64 // the end of what the command has written so far
	EOF      bool
}

// Welcome is the host's answer to Hello.
type Welcome struct {
	Version int
	Host    string   // random, of this host end: request ids are unique within it
	Pending []uint64 // requests that still want a reply; the guest forgets all others
	Env     []string // KEY=VALUE, the base environment of every command
	Limits  Limits
	User    string `json:",omitempty"` // whom commands run as, as images have it: NAME or UID[:GROUP]; "": the guest's own
	Dir     string `json:",omitempty"` // where commands start; "": the user's home directory
	Refused string `json:",omitempty"` // why the host will not talk to this guest
}

// Limits are set inside. Zero leaves a limit as it is.
type Limits struct {
	Processes int // RLIMIT_NPROC
	OpenFiles int `json:",omitempty"` // RLIMIT_NOFILE
}

// ExecSpec is sandbox.ExecSpec in this language.
type ExecSpec struct {
	ID          string
	Kind        string
	Argv        []string `json:",omitempty"`
	Code        string   `json:",omitempty"`
	Interpreter string   `json:",omitempty"`
	Dir         string   `json:",omitempty"`
	User        string   `json:",omitempty"` // "": Welcome's
	Env         []string `json:",omitempty"`
	TTY         *Size    `json:",omitempty"`
	Stdin       bool     `json:",omitempty"`
	Timeout     time.Duration
	Background  bool   `json:",omitempty"`
	Label       string `json:",omitempty"`
}

// Size is a terminal's size in characters.
type Size struct{ Rows, Cols uint16 }

// Exit reports the end of a command. Output up to the sizes precedes it on the connection.
type Exit struct {
	Exec     string
	ExitCode *int   `json:",omitempty"`
	Signal   string `json:",omitempty"`
	Cause    string `json:",omitempty"`
	TimedOut bool   `json:",omitempty"`
	EndedAt  time.Time
	Stdout   int64 // bytes written by the time it ended; children that it left may write more
	Stderr   int64
}

// ReplyHead is the head of every Reply.
type ReplyHead struct {
	Error  *Error          `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
}

// Error is an errdefs.Error in this language.
type Error struct {
	Kind, Code, Message, Hint string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Event is something that happens without a request.
type Event struct {
	Watch    uint64 // the id of the request that began the watch
	Path, Op string // Op "overflow": changes were missed
}
