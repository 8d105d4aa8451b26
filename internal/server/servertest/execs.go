package servertest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// command is a process of this machine with its spool.
type command struct {
	mu      sync.Mutex // guards the fields below
	st      api.Exec
	out     map[string][]byte // by stream
	in      io.WriteCloser
	tty     *os.File
	proc    *os.Process
	stdin   int64
	changed chan struct{}
}

func (c *command) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// writer spools one stream.
func (c *command) writer(stream string) io.Writer { return spool{c, stream} }

type spool struct {
	c      *command
	stream string
}

func (s spool) Write(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.out[s.stream] = append(s.c.out[s.stream], p...)
	s.c.notify()
	return len(p), nil
}

// StartExec starts a process, unless the id has one.
func (b *Backend) StartExec(_ context.Context, ref string, req api.StartExec) (api.Exec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.Exec{}, err
	}
	if c, ok := b.execs[id.Exec(req.ID)]; ok {
		return c.status(), nil
	}
	argv := req.Argv
	switch {
	case req.Kind == "python":
		argv = []string{"python3", "-c", req.Code}
	case len(argv) == 0:
		return api.Exec{}, errdefs.New(errdefs.Invalid, "exec_invalid", "no command is given")
	}
	c := &command{out: map[string][]byte{}, changed: make(chan struct{})}
	c.st = api.Exec{ID: req.ID, SessionID: s.ID, State: api.ExecRunning, Kind: req.Kind, Argv: argv, TTY: req.TTY != nil, StartedAt: time.Now().UTC()}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = b.Root
	cmd.Env = append(os.Environ(), req.Env...)
	if err := c.start(cmd, req); err != nil {
		return api.Exec{}, errdefs.Wrap(err, errdefs.NotFound, "command_not_found", "starting %s", argv[0])
	}
	b.execs[id.Exec(req.ID)] = c
	return c.status(), nil
}

// RunExec starts a process and waits for it.
func (b *Backend) RunExec(ctx context.Context, ref string, req api.StartExec, limit int64) (api.Exec, error) {
	if _, err := b.StartExec(ctx, ref, req); err != nil {
		return api.Exec{}, err
	}
	x, err := b.WaitExec(ctx, ref, id.Exec(req.ID))
	if err != nil {
		return x, err
	}
	for stream, into := range map[string]*string{"stdout": &x.Stdout, "stderr": &x.Stderr} {
		r, err := b.ExecOutput(ctx, ref, id.Exec(req.ID), stream, 0, false)
		if err != nil {
			return x, err
		}
		data, err := io.ReadAll(io.LimitReader(r, limit))
		if err = errors.Join(err, r.Close()); err != nil {
			return x, err
		}
		*into = string(data)
	}
	return x, nil
}

func (c *command) start(cmd *exec.Cmd, req api.StartExec) error {
	if req.TTY != nil {
		f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: req.TTY.Rows, Cols: req.TTY.Cols})
		if err != nil {
			return err
		}
		c.tty, c.in = f, f
		go func() { // ends with the process
			_, _ = io.Copy(c.writer("stdout"), f) // ends with EIO when the other side closes
			c.ended(cmd)
		}()
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Stdout, cmd.Stderr = c.writer("stdout"), c.writer("stderr")
		if req.Stdin {
			in, err := cmd.StdinPipe()
			if err != nil {
				return err
			}
			c.in = in
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		go c.ended(cmd)
	}
	c.proc = cmd.Process
	if req.TimeoutMS > 0 {
		time.AfterFunc(time.Duration(req.TimeoutMS)*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.st.State == api.ExecRunning {
				c.st.TimedOut = true
				_ = syscall.Kill(-c.proc.Pid, syscall.SIGKILL) // it may end at this moment
			}
		})
	}
	return nil
}

func (c *command) ended(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state says it all
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UTC()
	c.st.State, c.st.EndedAt = api.ExecExited, &now
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		c.st.Signal = unix.SignalName(ws.Signal())
	} else {
		code := cmd.ProcessState.ExitCode()
		c.st.ExitCode = &code
	}
	c.notify()
}

func (c *command) status() api.Exec {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.st
	st.StdoutSize, st.StderrSize, st.StdinSize = int64(len(c.out["stdout"])), int64(len(c.out["stderr"])), c.stdin
	return st
}

func (b *Backend) exec(ref string, name id.Exec) (*command, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.find(ref); err != nil {
		return nil, err
	}
	c, ok := b.execs[name]
	if !ok {
		return nil, errdefs.New(errdefs.NotFound, "exec_not_found", "there is no command %q", name)
	}
	return c, nil
}

// Running is how many processes have not ended.
func (b *Backend) Running() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, c := range b.execs {
		if c.status().State == api.ExecRunning {
			n++
		}
	}
	return n
}

// Close kills what still runs.
func (b *Backend) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.execs {
		if c.status().State == api.ExecRunning {
			_ = syscall.Kill(-c.proc.Pid, syscall.SIGKILL) // it may end at this moment
		}
	}
}

// GetExec shows a command.
func (b *Backend) GetExec(_ context.Context, ref string, name id.Exec) (api.Exec, error) {
	c, err := b.exec(ref, name)
	if err != nil {
		return api.Exec{}, err
	}
	return c.status(), nil
}

// ListExecs lists commands.
func (b *Backend) ListExecs(_ context.Context, ref string, page api.Page) (api.List[api.Exec], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.List[api.Exec]{}, err
	}
	var all []api.Exec
	for _, c := range b.execs {
		if st := c.status(); st.SessionID == s.ID {
			all = append(all, st)
		}
	}
	slices.SortFunc(all, func(a, b api.Exec) int { return a.StartedAt.Compare(b.StartedAt) })
	return paged(all, page, func(x api.Exec) string { return x.ID }), nil
}

// WaitExec waits for the end.
func (b *Backend) WaitExec(ctx context.Context, ref string, name id.Exec) (api.Exec, error) {
	c, err := b.exec(ref, name)
	if err != nil {
		return api.Exec{}, err
	}
	for {
		c.mu.Lock()
		state, changed := c.st.State, c.changed
		c.mu.Unlock()
		if state != api.ExecRunning {
			return c.status(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return api.Exec{}, context.Cause(ctx)
		}
	}
}

// AttachExec changes nothing.
func (b *Backend) AttachExec(_ context.Context, ref string, name id.Exec) (func(), error) {
	_, err := b.exec(ref, name)
	return func() {}, err
}

// SignalExec signals the process group.
func (b *Backend) SignalExec(_ context.Context, ref string, name id.Exec, signal int) error {
	c, err := b.exec(ref, name)
	if err != nil {
		return err
	}
	return syscall.Kill(-c.proc.Pid, syscall.Signal(signal))
}

// WriteStdin writes what is new.
func (b *Backend) WriteStdin(_ context.Context, ref string, name id.Exec, offset int64, data []byte, eof bool) error {
	c, err := b.exec(ref, name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	in, skip := c.in, c.stdin-offset
	c.mu.Unlock()
	switch {
	case in == nil:
		return errdefs.New(errdefs.Conflict, "stdin_closed", "the command takes no input")
	case skip < 0:
		return errdefs.New(errdefs.Conflict, "stdin_gap", "bytes before %d are missing", offset)
	}
	if skip < int64(len(data)) {
		n, err := in.Write(data[skip:])
		c.mu.Lock()
		c.stdin += int64(n)
		c.mu.Unlock()
		if err != nil {
			return errdefs.Wrap(err, errdefs.Conflict, "stdin_closed", "writing input")
		}
	}
	switch {
	case eof && c.tty != nil:
		_, err := in.Write([]byte{4}) // ^D: a terminal is not closed
		return err
	case eof:
		return in.Close()
	}
	return nil
}

// ResizeExec sets the terminal's size.
func (b *Backend) ResizeExec(_ context.Context, ref string, name id.Exec, size api.TerminalSize) error {
	c, err := b.exec(ref, name)
	if err != nil {
		return err
	}
	if c.tty == nil {
		return errdefs.New(errdefs.Conflict, "no_terminal", "the command has no terminal")
	}
	return pty.Setsize(c.tty, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
}

// ExecOutput reads the spool.
func (b *Backend) ExecOutput(ctx context.Context, ref string, name id.Exec, stream string, offset int64, follow bool) (io.ReadCloser, error) {
	c, err := b.exec(ref, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	return &reader{c: c, ctx: ctx, cancel: cancel, stream: stream, at: offset, follow: follow}, nil
}

type reader struct {
	c      *command
	ctx    context.Context
	cancel context.CancelFunc
	stream string
	at     int64
	follow bool
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		r.c.mu.Lock()
		data, state, changed := r.c.out[r.stream], r.c.st.State, r.c.changed
		r.c.mu.Unlock()
		if n := int64(len(data)); r.at < n {
			k := copy(p, data[r.at:])
			r.at += int64(k)
			return k, nil
		}
		if !r.follow || state != api.ExecRunning {
			return 0, io.EOF
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
			return 0, context.Cause(r.ctx)
		}
	}
}

func (r *reader) Close() error { r.cancel(); return nil }
