// Package tooltest is a sandbox without walls, for tests of tools and of the agent loop: commands are plain processes of the
// machine, and files are the machine's. It keeps the contract of sandbox.Execs as far as those tests need it: starting is
// idempotent in the exec id, output is kept, and commands go on when whoever started them is gone.
//
// It is not isolated and has no persistent interpreters; the drivers' own tests cover those.
package tooltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Sandbox is a sandbox without walls.
type Sandbox struct {
	dir string
	id  id.Sandbox

	mu    sync.Mutex // guards all below
	execs map[id.Exec]*command
	order []id.Exec
}

var _ sandbox.Sandbox = (*Sandbox)(nil)

// New returns a sandbox whose commands start in dir.
func New(dir string) *Sandbox {
	return &Sandbox{dir: dir, id: id.NewSandbox(), execs: map[id.Exec]*command{}}
}

type command struct {
	status         sandbox.ExecStatus
	stdout, stderr bytes.Buffer
	done           chan struct{}
	timer          *time.Timer
}

type lockedWriter struct {
	s *Sandbox
	b *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.b.Write(p)
}

// ID returns the sandbox's id.
func (s *Sandbox) ID() id.Sandbox { return s.id }

// Status reports it as running.
func (s *Sandbox) Status(context.Context) (sandbox.Status, error) {
	return sandbox.Status{ID: s.id, State: sandbox.Running}, nil
}

// Wait returns when ctx ends: it does not die by itself.
func (s *Sandbox) Wait(ctx context.Context) (sandbox.Status, error) {
	<-ctx.Done()
	return sandbox.Status{}, context.Cause(ctx)
}

// Pause is not supported.
func (s *Sandbox) Pause(context.Context) error { return errors.ErrUnsupported }

// Unpause is not supported.
func (s *Sandbox) Unpause(context.Context) error { return errors.ErrUnsupported }

// Checkpoint is not supported.
func (s *Sandbox) Checkpoint(context.Context, sandbox.CheckpointRequest) (sandbox.Warm, error) {
	return nil, errors.ErrUnsupported
}

// Hooks runs none.
func (s *Sandbox) Hooks(context.Context, sandbox.Hooks) ([]sandbox.HookRun, error) { return nil, nil }

// Dial fails: nobody listens.
func (s *Sandbox) Dial(_ context.Context, port uint16) (sandbox.Conn, error) {
	return nil, errdefs.New(errdefs.Unavailable, "port_refused", "nobody listens on port %d", port)
}

// RestoreReport fails: it was never restored.
func (s *Sandbox) RestoreReport(context.Context) (sandbox.RestoreReport, error) {
	return sandbox.RestoreReport{}, errdefs.New(errdefs.NotFound, "not_restored", "this sandbox was booted, not restored")
}

// Destroy kills what runs and waits for it.
func (s *Sandbox) Destroy(context.Context) error {
	s.mu.Lock()
	var all []*command
	for _, c := range s.execs {
		if c.status.State == sandbox.ExecRunning {
			_ = syscall.Kill(-c.status.PID, syscall.SIGKILL)
		}
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		<-c.done
	}
	return nil
}

// Lose does what the death of the sandbox does: everything that runs is lost with the cause.
func (s *Sandbox) Lose(ctx context.Context, cause string) error {
	s.mu.Lock()
	for _, c := range s.execs {
		if c.status.State == sandbox.ExecRunning {
			c.status.Cause = cause
		}
	}
	s.mu.Unlock()
	return s.Destroy(ctx)
}

// Execs returns the commands.
func (s *Sandbox) Execs() sandbox.Execs { return execs{s} }

// Files returns the machine's files.
func (s *Sandbox) Files() sandbox.Files { return files{} }

type execs struct{ s *Sandbox }

func (e execs) Start(_ context.Context, spec sandbox.ExecSpec) (sandbox.ExecStatus, error) {
	s := e.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.execs[spec.ID]; ok {
		return s.statusOf(c), nil
	}
	argv := spec.Argv
	switch spec.Kind {
	case sandbox.ExecShell:
		argv = []string{"sh", "-c", spec.Code}
	case sandbox.ExecPython:
		argv = []string{"python3", "-c", spec.Code}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	c := &command{done: make(chan struct{})}
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), spec.Env...)
	cmd.Env = append(cmd.Env, "HOME="+s.dir)
	cmd.Stdout, cmd.Stderr = lockedWriter{s, &c.stdout}, lockedWriter{s, &c.stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return sandbox.ExecStatus{}, errdefs.Wrap(err, errdefs.NotFound, "command_not_found", "cannot run %s", argv[0])
	}
	c.status = sandbox.ExecStatus{ID: spec.ID, Spec: spec, State: sandbox.ExecRunning, PID: cmd.Process.Pid, StartedAt: time.Now()}
	if spec.Timeout > 0 {
		c.timer = time.AfterFunc(spec.Timeout, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if c.status.State == sandbox.ExecRunning {
				c.status.TimedOut = true
				_ = syscall.Kill(-c.status.PID, syscall.SIGKILL)
			}
		})
	}
	s.execs[spec.ID], s.order = c, append(s.order, spec.ID)
	go s.reap(cmd, c)
	return s.statusOf(c), nil
}

func (e execs) Run(ctx context.Context, spec sandbox.ExecSpec, limit int) (sandbox.ExecResult, error) {
	var res sandbox.ExecResult
	_, err := e.Start(ctx, spec)
	if err == nil {
		res.Status, err = e.Wait(ctx, spec.ID)
	}
	if err != nil {
		return res, err
	}
	c, err := e.s.find(spec.ID)
	if err != nil {
		return res, err
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	head := func(b []byte) []byte { return bytes.Clone(b[:min(len(b), limit)]) }
	res.Stdout, res.Stderr = head(c.stdout.Bytes()), head(c.stderr.Bytes())
	return res, nil
}

func (s *Sandbox) reap(cmd *exec.Cmd, c *command) {
	err := cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(c.done)
	if c.timer != nil {
		c.timer.Stop()
	}
	c.status.State, c.status.EndedAt = sandbox.ExecExited, time.Now()
	if c.status.Cause != "" {
		c.status.State = sandbox.ExecLost
		return
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		c.status.Signal = ws.Signal().String()
		return
	}
	var ee *exec.ExitError
	if err == nil || errors.As(err, &ee) {
		code := cmd.ProcessState.ExitCode()
		c.status.ExitCode = &code
	}
}

// statusOf needs s.mu.
func (s *Sandbox) statusOf(c *command) sandbox.ExecStatus {
	st := c.status
	st.StdoutSize, st.StderrSize = int64(c.stdout.Len()), int64(c.stderr.Len())
	return st
}

func (s *Sandbox) find(exec id.Exec) (*command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.execs[exec]; ok {
		return c, nil
	}
	return nil, errdefs.New(errdefs.NotFound, "exec_not_found", "no command %s", exec)
}

func (e execs) Status(_ context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	c, err := e.s.find(exec)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.s.statusOf(c), nil
}

func (e execs) List(ctx context.Context) ([]sandbox.ExecStatus, error) {
	e.s.mu.Lock()
	order := append([]id.Exec(nil), e.s.order...)
	e.s.mu.Unlock()
	var out []sandbox.ExecStatus
	for _, x := range order {
		st, err := e.Status(ctx, x)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

func (e execs) Wait(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	c, err := e.s.find(exec)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	select {
	case <-c.done:
		return e.Status(ctx, exec)
	case <-ctx.Done():
		return sandbox.ExecStatus{}, context.Cause(ctx)
	}
}

func (e execs) Signal(ctx context.Context, exec id.Exec, signal int) error {
	st, err := e.Status(ctx, exec)
	if err != nil || st.State != sandbox.ExecRunning {
		return err
	}
	return syscall.Kill(-st.PID, syscall.Signal(signal))
}

func (e execs) Stdin(context.Context, id.Exec, int64, []byte, bool) error {
	return errors.ErrUnsupported
}

func (e execs) Resize(context.Context, id.Exec, sandbox.TerminalSize) error {
	return errors.ErrUnsupported
}

func (e execs) Output(_ context.Context, exec id.Exec, stream sandbox.Stream, offset int64, follow bool) (io.ReadCloser, error) {
	if follow {
		return nil, errors.ErrUnsupported
	}
	c, err := e.s.find(exec)
	if err != nil {
		return nil, err
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	b := c.stdout.Bytes()
	if stream == sandbox.Stderr {
		b = c.stderr.Bytes()
	}
	return io.NopCloser(bytes.NewReader(bytes.Clone(b[min(offset, int64(len(b))):]))), nil
}
