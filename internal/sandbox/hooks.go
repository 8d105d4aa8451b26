package sandbox

import (
	"context"
	"net"
	"time"
)

// Guest is what the first process in a sandbox does besides commands and files.
type Guest interface {
	// RestoreReport tells about the restore with which this sandbox began. Error: not_restored.
	RestoreReport(ctx context.Context) (RestoreReport, error)
	// Hooks runs the programs that the workspace has for an occasion, one after the other in the order of their names. It returns when the last
	// one has ended or been killed; what one of them does is no error.
	Hooks(ctx context.Context, req Hooks) ([]HookRun, error)
	// Dial connects to a TCP port on the sandbox's own loopback. The connection ends with the sandbox, and at the latest with the next
	// checkpoint. Errors: port_refused if nobody listens, too_many_connections.
	Dial(ctx context.Context, port uint16) (Conn, error)
}

// Conn is a stream of bytes in both directions.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// The occasions that a workspace may have hooks for. Those of an occasion are the executable files in /etc/perdure/hooks/OCCASION.d whose names have letters, digits, '_' and
// '-' only, as with run-parts(8).
const (
	HookPreSuspend = "pre-suspend"
	HookPostResume = "post-resume"
	HookPostFork   = "post-fork"
)

// Hooks asks for the hooks of an occasion to be run.
type Hooks struct {
	Occasion string
	Env      []string      // KEY=VALUE, beside the sandbox's own
	Each     time.Duration // that one hook may take, with all that it has started in its group or session
	All      time.Duration // that all may take together
}

// HookRun is a hook that has run, or was to.
type HookRun struct {
	Name     string
	ExitCode *int   // nil: it did not end by itself
	Cause    string // for people, if it did not
	Output   string // the beginning of what it wrote
	Took     time.Duration
}

// OK reports whether the hook did what it was to do.
func (h HookRun) OK() bool { return h.ExitCode != nil && *h.ExitCode == 0 }
