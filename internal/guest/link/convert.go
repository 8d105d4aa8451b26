package link

import (
	"slices"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

func specToWire(s sandbox.ExecSpec) wire.ExecSpec {
	w := wire.ExecSpec{
		ID: string(s.ID), Kind: string(s.Kind), Argv: s.Argv, Code: s.Code, Interpreter: s.Interpreter, Dir: s.Dir, User: s.User, Env: s.Env,
		Stdin: s.Stdin, Timeout: s.Timeout, Background: s.Background, Label: s.Label,
	}
	if s.TTY != nil {
		w.TTY = &wire.Size{Rows: s.TTY.Rows, Cols: s.TTY.Cols}
	}
	return w
}

func specFromWire(w wire.ExecSpec) sandbox.ExecSpec {
	s := sandbox.ExecSpec{
		ID: id.Exec(w.ID), Kind: sandbox.ExecKind(w.Kind), Argv: w.Argv, Code: w.Code, Interpreter: w.Interpreter, Dir: w.Dir, User: w.User, Env: w.Env,
		Stdin: w.Stdin, Timeout: w.Timeout, Background: w.Background, Label: w.Label,
	}
	if w.TTY != nil {
		s.TTY = &sandbox.TerminalSize{Rows: w.TTY.Rows, Cols: w.TTY.Cols}
	}
	return s
}

// errorFromWire trusts the guest's choice of kind only if it is one.
func errorFromWire(w *wire.Error) error {
	kind := errdefs.Kind(w.Kind)
	known := []errdefs.Kind{
		errdefs.Invalid, errdefs.NotFound, errdefs.Conflict, errdefs.Denied, errdefs.Timeout, errdefs.Unavailable, errdefs.Exhausted,
	}
	if !slices.Contains(known, kind) {
		kind = errdefs.Internal
	}
	return &errdefs.Error{Kind: kind, Code: clip(w.Code), Message: clip(w.Message), Hint: clip(w.Hint)}
}

func processesFromWire(list []wire.Process) []sandbox.Process {
	out := make([]sandbox.Process, len(list))
	for i, p := range list {
		out[i] = sandbox.Process{PID: p.PID, PPID: p.PPID, Args: clipAll(p.Args), State: clip(p.State), RSS: p.RSS, Exec: id.Exec(p.Exec)}
	}
	return out
}

func infoFromWire(f wire.FileInfo) sandbox.FileInfo {
	return sandbox.FileInfo{Name: f.Name, Size: f.Size, Mode: f.Mode, ModTime: f.ModTime, Target: f.Target}
}
