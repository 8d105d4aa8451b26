package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/sandbox"
)

const (
	defaultTimeout = 10 * time.Minute
	maxTimeout     = 24 * time.Hour
)

type runArgs struct {
	Command    string `json:"command"`
	Timeout    int    `json:"timeout_seconds"`
	Background bool   `json:"background"`
	Label      string `json:"label"`
}

func runTool() Tool {
	return Tool{
		Class: ClassExec,
		Spec: model.ToolSpec{
			Name: "run",
			Description: "Run a command in the workspace's persistent bash: working directory, variables and functions stay from call to call. " +
				"Returns output and exit code. A command that should go on (a server, a long job) takes background=true: it runs in a process of its own, " +
				"the call returns its exec id at once, and the processes tool shows and ends it.",
			Schema: schema(`"command":{"type":"string","description":"what bash is to run"},`+
				`"timeout_seconds":{"type":"integer","minimum":1,"maximum":86400,"description":"kill it after this long; default 600, none for background commands"},`+
				`"background":{"type":"boolean"},`+
				`"label":{"type":"string","description":"a name for a background command"}`, "command"),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			var a runArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			spec, err := a.spec(call)
			if err != nil {
				return Result{}, err
			}
			return env.exec(ctx, spec)
		},
	}
}

func (a runArgs) spec(call Call) (sandbox.ExecSpec, error) {
	spec := sandbox.ExecSpec{ID: call.Exec, Label: a.Label}
	if strings.TrimSpace(a.Command) == "" {
		return spec, badArg("command is empty")
	}
	timeout, err := timeoutOf(a.Timeout)
	if err != nil {
		return spec, err
	}
	if !a.Background {
		spec.Kind, spec.Code, spec.Timeout = sandbox.ExecShell, a.Command, timeout
		return spec, nil
	}
	// A login shell of its own, so that it neither waits for the persistent one nor dies with it.
	spec.Kind, spec.Argv, spec.Background = sandbox.ExecProcess, []string{"bash", "-lc", a.Command}, true
	if a.Timeout > 0 {
		spec.Timeout = timeout
	}
	if spec.Label == "" {
		spec.Label = firstLine(a.Command, 60)
	}
	return spec, nil
}

func timeoutOf(seconds int) (time.Duration, error) {
	switch d := time.Duration(seconds) * time.Second; {
	case seconds == 0:
		return defaultTimeout, nil
	case seconds < 0 || d > maxTimeout:
		return 0, badArg("timeout_seconds must be between 1 and %d", maxTimeout/time.Second)
	default:
		return d, nil
	}
}

type pythonArgs struct {
	Code    string `json:"code"`
	Timeout int    `json:"timeout_seconds"`
}

func pythonTool() Tool {
	return Tool{
		Class: ClassExec,
		Spec: model.ToolSpec{
			Name: "python",
			Description: "Run code in the workspace's persistent Python interpreter: variables and imports stay from call to call. " +
				"Returns what it printed, and the value of a last expression.",
			Schema: schema(`"code":{"type":"string"},`+
				`"timeout_seconds":{"type":"integer","minimum":1,"maximum":86400,"description":"interrupt it after this long; default 600"}`, "code"),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			var a pythonArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			if strings.TrimSpace(a.Code) == "" {
				return Result{}, badArg("code is empty")
			}
			timeout, err := timeoutOf(a.Timeout)
			if err != nil {
				return Result{}, err
			}
			return env.exec(ctx, sandbox.ExecSpec{ID: call.Exec, Kind: sandbox.ExecPython, Code: a.Code, Timeout: timeout})
		},
	}
}

// exec starts a command, or finds the one that already has the id, and waits for it unless it is a background one.
func (e Env) exec(ctx context.Context, spec sandbox.ExecSpec) (Result, error) {
	execs := e.Sandbox.Execs()
	var res sandbox.ExecResult
	var err error
	if spec.Background {
		res.Status, err = execs.Start(ctx, spec)
	} else {
		res, err = execs.Run(ctx, spec, e.maxOutput())
	}
	if err != nil {
		if late, serr := execs.Status(ctx, spec.ID); serr == nil && late.State != sandbox.ExecRunning {
			return e.ended(ctx, sandbox.ExecResult{Status: late}) // it left a record that says more, such as exit code 127
		}
		return Result{}, err
	}
	if spec.Background {
		return e.started(ctx, res.Status)
	}
	return e.ended(ctx, res)
}

// Collect returns the result of a command that has ended, or of a background one in any state.
func (e Env) Collect(ctx context.Context, st sandbox.ExecStatus) (Result, error) {
	if st.Spec.Background {
		return e.started(ctx, st)
	}
	return e.ended(ctx, sandbox.ExecResult{Status: st})
}

func (e Env) started(ctx context.Context, st sandbox.ExecStatus) (Result, error) {
	if st.State == sandbox.ExecRunning {
		return ok("started in the background as %s (pid %d); read its output or end it with the processes tool", st.ID, st.PID), nil
	}
	return e.ended(ctx, sandbox.ExecResult{Status: st})
}

// ended formats the outcome of a command for the model.
func (e Env) ended(ctx context.Context, res sandbox.ExecResult) (Result, error) {
	st := res.Status
	src := e.spool(ctx, res)
	art, err := e.keep(ctx, string(st.ID)+".txt", e.maxOutput(), src)
	if err != nil {
		return Result{}, err
	}
	out, err := src.clip(e.maxOutput(), art)
	if err != nil {
		return Result{}, err
	}
	r := Result{Outcome: event.OutcomeOK, Artifact: art, ExitCode: st.ExitCode}
	note := ""
	switch {
	case st.TimedOut:
		r.Outcome = event.OutcomeTimeout
		note = fmt.Sprintf("[timed out after %s and was killed]", st.Spec.Timeout)
	case st.State == sandbox.ExecLost:
		r.Outcome = event.OutcomeInterrupted
		note = fmt.Sprintf("[interrupted: %s. What it had done by then is done; look before you repeat it]", orElse(st.Cause, "its sandbox died"))
	case st.State == sandbox.ExecRunning:
		note = "[still running]"
	case st.Signal != "":
		r.Outcome = event.OutcomeError
		note = fmt.Sprintf("[killed by %s]", st.Signal)
	case st.ExitCode == nil:
		r.Outcome = event.OutcomeError
		note = fmt.Sprintf("[ended without an exit code: %s]", orElse(st.Cause, "cause unknown"))
	case *st.ExitCode != 0:
		r.Outcome = event.OutcomeError
		note = fmt.Sprintf("[exit code %d]", *st.ExitCode)
		if st.Cause != "" {
			note = fmt.Sprintf("[exit code %d: %s]", *st.ExitCode, st.Cause)
		}
	}
	r.Output = join(out, note)
	return r, nil
}

func join(out, note string) string {
	switch {
	case note == "" && out == "":
		return "(no output)"
	case note == "":
		return out
	case out == "":
		return note
	case strings.HasSuffix(out, "\n"):
		return out + note
	}
	return out + "\n" + note
}

// spool is both output streams of a command as one source: standard error follows standard output under a heading. A stream that came
// along whole is not asked for again.
func (e Env) spool(ctx context.Context, res sandbox.ExecResult) source {
	execs, st := e.Sandbox.Execs(), res.Status
	stream := func(name sandbox.Stream, size int64, head []byte) source {
		if int64(len(head)) == size {
			return textSource(string(head))
		}
		return source{size: size, open: func(off int64) (io.ReadCloser, error) {
			r, err := execs.Output(ctx, st.ID, name, off, false)
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{io.LimitReader(r, size-off), r}, nil
		}}
	}
	parts := []source{}
	if st.StdoutSize > 0 {
		parts = append(parts, stream(sandbox.Stdout, st.StdoutSize, res.Stdout))
	}
	if st.StderrSize > 0 {
		parts = append(parts, textSource("[stderr]\n"), stream(sandbox.Stderr, st.StderrSize, res.Stderr))
		if st.StdoutSize > 0 {
			parts[1] = textSource("\n[stderr]\n")
		}
	}
	return concat(parts)
}

// concat is several sources as one.
func concat(parts []source) source {
	all := source{}
	for _, p := range parts {
		all.size += p.size
	}
	all.open = func(off int64) (io.ReadCloser, error) {
		c := &chain{}
		for _, p := range parts {
			if off >= p.size {
				off -= p.size
				continue
			}
			r, err := p.open(off)
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			c.parts = append(c.parts, r)
			off = 0
		}
		readers := make([]io.Reader, len(c.parts))
		for i, r := range c.parts {
			readers[i] = r
		}
		c.Reader = io.MultiReader(readers...)
		return c, nil
	}
	return all
}

type chain struct {
	io.Reader
	parts []io.ReadCloser
}

func (c *chain) Close() error {
	var errs []error
	for _, p := range c.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func firstLine(s string, n int) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// NotFound reports whether err says that a sandbox does not know an exec id.
func NotFound(err error) bool { return errdefs.CodeOf(err) == "exec_not_found" }
