package link

import (
	"context"
	"time"

	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/sandbox"
)

// RestoreInfo is what a guest has to learn after it came back from an image.
type RestoreInfo struct {
	Hostname  string    // "": keep
	MachineID string    // 32 hex digits; "": keep
	Entropy   []byte    // at least 32 random bytes, different for each restore
	Now       time.Time // zero: the Link's clock
}

// RestoreReport says what survived and what did not.
type RestoreReport struct {
	Processes    []sandbox.Process
	ClockStep    time.Duration // the guest's wall clock minus the host's, after the restore
	Hostname     string
	Reseeded     []string          // what got new randomness
	Unreseeded   []sandbox.Process // processes whose own random generator is a copy of the original's
	Connections  []Connection      // to the outside; the restore has broken them
	Interpreters []Interpreter
	Problems     []string // what could not be done, for people
}

// Connection is an established TCP connection to somewhere outside the sandbox, as ADDRESS:PORT.
type Connection struct{ Local, Remote string }

// Interpreter is a persistent interpreter.
type Interpreter struct {
	Kind  sandbox.ExecKind
	Name  string
	PID   int
	Alive bool
}

// Restored tells the guest that it has been restored, so that it renews what must differ between copies. Call it
// after Connected and before anything else runs.
func (l *Link) Restored(ctx context.Context, info RestoreInfo) (RestoreReport, error) {
	now := info.Now
	if now.IsZero() {
		now = l.cfg.Clock.Now()
	}
	args := wire.RestoredArgs{Hostname: info.Hostname, MachineID: info.MachineID, Entropy: info.Entropy, Now: now}
	var res wire.RestoredResult
	if _, err := l.call(ctx, wire.MethodRestored, args, nil, &res); err != nil {
		return RestoreReport{}, err
	}
	rep := RestoreReport{
		Processes: processesFromWire(res.Processes), ClockStep: res.Clock, Hostname: clip(res.Hostname), Reseeded: clipAll(res.Reseeded),
		Unreseeded: processesFromWire(res.Unreseeded), Problems: clipAll(res.Problems),
	}
	for _, c := range res.Connections {
		rep.Connections = append(rep.Connections, Connection{clip(c.Local), clip(c.Remote)})
	}
	for _, i := range res.Interpreters {
		rep.Interpreters = append(rep.Interpreters, Interpreter{sandbox.ExecKind(clip(i.Kind)), clip(i.Name), i.PID, i.Alive})
	}
	return rep, nil
}
