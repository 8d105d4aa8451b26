package link

import (
	"context"
	"io"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// maxCode bounds the text of a command, in bytes. Larger programs belong in a file.
const maxCode = 4 << 20

// execs implements sandbox.Execs.
type execs struct{ l *Link }

// Start implements sandbox.Execs. Once the record is made the start goes through even if ctx ends: the next Start of the
// same id finds it.
func (e execs) Start(ctx context.Context, spec sandbox.ExecSpec) (sandbox.ExecStatus, error) {
	if err := checkSpec(spec); err != nil {
		return sandbox.ExecStatus{}, err
	}
	r, p, err := e.begin(spec)
	if err != nil || p == nil {
		if r != nil {
			return r.Status(), err
		}
		return sandbox.ExecStatus{}, err
	}
	select {
	case <-p.done:
		return r.Status(), p.err
	case <-ctx.Done():
		return r.Status(), context.Cause(ctx)
	}
}

// Run implements sandbox.Execs.
func (e execs) Run(ctx context.Context, spec sandbox.ExecSpec, limit int) (sandbox.ExecResult, error) {
	var res sandbox.ExecResult
	_, err := e.Start(ctx, spec)
	if err == nil {
		res.Status, err = e.Wait(ctx, spec.ID)
	}
	if err != nil {
		return res, err
	}
	r, err := e.l.cfg.Spool.Get(spec.ID)
	if err == nil {
		res.Stdout, res.Stderr, err = r.Heads(ctx, limit)
	}
	return res, err
}

// begin makes the record and sends the request, or finds the start that is under way (p) or over (p nil).
func (e execs) begin(spec sandbox.ExecSpec) (*spool.Record, *call, error) {
	l := e.l
	l.mu.Lock()
	p, dead := l.starting[spec.ID], l.dead
	if r, err := l.cfg.Spool.Get(spec.ID); err == nil {
		l.mu.Unlock()
		return r, p, nil
	}
	if dead != nil {
		l.mu.Unlock()
		return nil, nil, dead
	}
	// Entered before the record exists, so that a guest that connects in between does not make it a lost one.
	mine := &call{done: make(chan struct{})}
	l.starting[spec.ID] = mine
	r, _, err := l.cfg.Spool.Create(spec)
	l.mu.Unlock()
	if err == nil {
		_, _, err = l.begin(wire.MethodExecStart, specToWire(spec), nil, func(head wire.ReplyHead, err error) {
			e.started(r, mine, head, err)
		})
		if err != nil {
			e.started(r, mine, wire.ReplyHead{}, err)
		}
		return r, mine, nil
	}
	l.mu.Lock()
	delete(l.starting, spec.ID)
	l.mu.Unlock()
	mine.finish(l, wire.ReplyHead{}, nil, err)
	return nil, nil, err
}

// started records how a start went and wakes those who wait for it.
func (e execs) started(r *spool.Record, mine *call, head wire.ReplyHead, err error) {
	if saveErr := recordStart(r, head, err); saveErr != nil && err == nil {
		err = saveErr
	}
	e.l.mu.Lock()
	delete(e.l.starting, r.ID())
	e.l.mu.Unlock()
	mine.finish(e.l, wire.ReplyHead{}, nil, err)
}

func recordStart(r *spool.Record, head wire.ReplyHead, err error) error {
	switch {
	case err == nil:
		var s wire.ExecStarted
		if err := decode(head.Result, &s); err != nil {
			return err
		}
		r.Started(s.PID, s.StartedAt, clip(s.Cause))
		return nil
	case errdefs.CodeOf(err) == "command_not_found":
		return refused(r, 127, err)
	case errdefs.CodeOf(err) == "command_not_executable":
		return refused(r, 126, err)
	case errdefs.CodeOf(err) == "link_closed":
		return nil // the next link to this guest learns the outcome
	default:
		_, loseErr := r.Lose(err.Error())
		return loseErr
	}
}

// refused records a command that could not be run, with the exit code that a shell gives.
func refused(r *spool.Record, code int, err error) error {
	return r.Exit(spool.End{ExitCode: &code, Cause: err.Error(), At: r.Now()})
}

func checkSpec(s sandbox.ExecSpec) error {
	invalid := func(format string, args ...any) *errdefs.Error {
		return errdefs.New(errdefs.Invalid, "exec_invalid", format, args...)
	}
	switch s.Kind {
	case sandbox.ExecProcess:
		if len(s.Argv) == 0 || s.Argv[0] == "" {
			return invalid("a process needs a command")
		}
		if s.Code != "" {
			return invalid("a process has arguments, no code")
		}
	case sandbox.ExecShell, sandbox.ExecPython:
		if s.TTY != nil {
			return invalid("a %s command has no terminal", s.Kind).WithHint("start the interpreter as a process with a terminal")
		}
		if len(s.Code) > maxCode {
			return invalid("%d bytes of code are more than %d", len(s.Code), maxCode).WithHint("write it to a file first")
		}
		if s.Interpreter != "" && !id.ValidExternal(s.Interpreter) {
			return invalid("%q is no name for an interpreter", s.Interpreter)
		}
	default:
		return invalid("there is no kind of command %q", s.Kind).WithHint("use process, shell or python")
	}
	if s.Timeout < 0 {
		return invalid("a timeout of %s is in the past", s.Timeout)
	}
	for _, text := range append(append([]string{s.Code, s.Dir}, s.Argv...), s.Env...) {
		if strings.ContainsRune(text, 0) {
			return invalid("a NUL byte in a command")
		}
	}
	return nil
}

// Status implements sandbox.Execs.
func (e execs) Status(_ context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	r, err := e.l.cfg.Spool.Get(exec)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	return r.Status(), nil
}

// List implements sandbox.Execs.
func (e execs) List(context.Context) ([]sandbox.ExecStatus, error) { return e.l.cfg.Spool.List(), nil }

// Wait implements sandbox.Execs.
func (e execs) Wait(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	r, err := e.l.cfg.Spool.Get(exec)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	for {
		st, changed := r.Changed()
		if st.State != sandbox.ExecRunning {
			return st, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return st, context.Cause(ctx)
		case <-e.l.ctx.Done():
			return st, errdefs.New(errdefs.Unavailable, "link_closed", "the link to the sandbox was closed")
		}
	}
}

// Signal implements sandbox.Execs. A command that has ended may have left children; the signal still reaches those.
func (e execs) Signal(ctx context.Context, exec id.Exec, signal int) error {
	if _, err := e.l.cfg.Spool.Get(exec); err != nil {
		return err
	}
	_, err := e.l.call(ctx, wire.MethodExecSignal, wire.SignalArgs{Exec: string(exec), Signal: signal}, nil, nil)
	return err
}

// Stdin implements sandbox.Execs. It returns when the guest has taken the bytes. Errors: stdin_gap, stdin_closed.
func (e execs) Stdin(ctx context.Context, exec id.Exec, offset int64, data []byte, eof bool) error {
	r, err := e.l.cfg.Spool.Get(exec)
	if err != nil {
		return err
	}
	for {
		piece := data[:min(len(data), wire.MaxBlob)]
		data = data[len(piece):]
		args := wire.StdinArgs{Exec: string(exec), Offset: offset, EOF: eof && len(data) == 0}
		var res wire.StdinResult
		if _, err := e.l.call(ctx, wire.MethodExecStdin, args, piece, &res); err != nil {
			return err
		}
		r.Took(res.Next)
		offset += int64(len(piece))
		if len(data) == 0 {
			return nil
		}
	}
}

// Resize implements sandbox.Execs.
func (e execs) Resize(ctx context.Context, exec id.Exec, size sandbox.TerminalSize) error {
	if _, err := e.l.cfg.Spool.Get(exec); err != nil {
		return err
	}
	args := wire.ResizeArgs{Exec: string(exec), Size: wire.Size{Rows: size.Rows, Cols: size.Cols}}
	_, err := e.l.call(ctx, wire.MethodExecResize, args, nil, nil)
	return err
}

// Output implements sandbox.Execs.
func (e execs) Output(ctx context.Context, exec id.Exec, stream sandbox.Stream, offset int64, follow bool) (io.ReadCloser, error) {
	r, err := e.l.cfg.Spool.Get(exec)
	if err != nil {
		return nil, err
	}
	return r.Reader(ctx, stream, offset, follow)
}
