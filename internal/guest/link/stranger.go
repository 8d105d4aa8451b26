package link

import (
	"fmt"
	"strings"

	"perdure.dev/perdure/internal/guest/wire"
)

// What a guest may ask of the host. All of it is far beyond what an honest one needs.
const (
	maxExecs    = 1 << 14   // commands in a Hello: each becomes a directory of the spool
	maxOffset   = 1 << 60   // of a stream, in bytes: sums of two cannot overflow
	maxText     = 4 << 10   // of a text for people, in bytes: it goes into records and is listed for ever
	maxOwed     = 8 << 20   // answers that a guest does not read, in bytes
	maxGreeting = 8         // connections that have not said hello
	maxListing  = 128 << 20 // the entries of one directory, in bytes
)

// checkHello refuses a Hello that makes no sense.
func checkHello(h wire.Hello) error {
	if len(h.Execs) > maxExecs {
		return fmt.Errorf("%w: %d commands are more than %d", wire.ErrFrame, len(h.Execs), maxExecs)
	}
	for _, e := range h.Execs {
		for _, s := range []wire.StreamState{e.Stdout, e.Stderr} {
			if s.Start < 0 || s.Start > s.Produced || s.Produced > maxOffset {
				return fmt.Errorf("%w: a stream from %d to %d", wire.ErrFrame, s.Start, s.Produced)
			}
		}
	}
	return nil
}

// clip bounds a text that came from a guest.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

func clipAll(list []string) []string {
	for i := range list {
		list[i] = clip(list[i])
	}
	return list
}

// clipSpec bounds the texts of a command that only the guest knows.
func clipSpec(w wire.ExecSpec) wire.ExecSpec {
	w.Kind, w.Code, w.Interpreter, w.Dir, w.Label = clip(w.Kind), clip(w.Code), clip(w.Interpreter), clip(w.Dir), clip(w.Label)
	w.Argv, w.Env = clipAll(w.Argv), clipAll(w.Env)
	return w
}
