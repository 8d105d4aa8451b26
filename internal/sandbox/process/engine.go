package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// Engine is a shim.Engine that runs the guest on the host.
type Engine struct {
	cfg   shim.Config
	dir   string
	log   *slog.Logger
	cmd   *exec.Cmd
	ended chan struct{} // closed when the guest was reaped
	cause string        // valid once ended is closed
	proc  shim.Process
}

var _ shim.Engine = (*Engine)(nil)

// NewEngine makes the engine for cfg. It is a shim.Factory.
func NewEngine(cfg shim.Config, stateDir string, log *slog.Logger) (shim.Engine, error) {
	return &Engine{cfg: cfg, dir: stateDir, log: log, ended: make(chan struct{})}, nil
}

// Start implements shim.Engine.
func (e *Engine) Start(context.Context) error {
	// Orphans of the guest come to the shim when the guest dies, so that Destroy finds them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	home := e.cfg.Spec.Root.Upper
	e.cmd = exec.Command(e.cfg.Guest, guestArgs(e.dir, home)...)
	e.cmd.Dir = home
	e.cmd.Env = append(shim.HostEnv(os.Environ()), "HOME="+home, marker(e.cfg))
	e.cmd.Stdout, e.cmd.Stderr = os.Stdout, os.Stderr
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "engine_failed", "start the guest")
	}
	var err error
	if e.proc, err = shim.ProcessOf("guest", e.cmd.Process.Pid); err != nil {
		return err
	}
	go e.reap()
	return nil
}

// reap waits for the guest. Owned by Start; ends with the guest.
func (e *Engine) reap() {
	err := e.cmd.Wait()
	e.cause = "the guest ended"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		e.cause = "the guest ended: " + exit.String()
	}
	killTree(os.Getpid())
	close(e.ended)
}

// Wait implements shim.Engine.
func (e *Engine) Wait() string {
	<-e.ended
	return e.cause
}

// Running implements shim.Engine.
func (e *Engine) Running() shim.Running {
	r := shim.Running{}
	if e.proc.PID != 0 {
		r.Processes, r.Marker = []shim.Process{e.proc}, marker(e.cfg)
	}
	return r
}

// Pause implements shim.Engine: everything below the guest is stopped, the guest last so that it starts nothing new.
func (e *Engine) Pause(context.Context) error {
	if err := unix.Kill(e.proc.PID, unix.SIGSTOP); err != nil {
		return err
	}
	signalTree(e.proc.PID, unix.SIGSTOP)
	return nil
}

// Unpause implements shim.Engine.
func (e *Engine) Unpause(context.Context) error {
	signalTree(e.proc.PID, unix.SIGCONT)
	return unix.Kill(e.proc.PID, unix.SIGCONT)
}

// Prepare implements shim.Engine.
func (e *Engine) Prepare(context.Context, string) error { return nil }

// Save implements shim.Engine: there is no memory to save, and a checkpoint is the cut of the files while all stands still.
func (e *Engine) Save(context.Context, string) error { return nil }

// Nudge implements shim.Engine. Nothing ever breaks the socket here.
func (e *Engine) Nudge(context.Context) error { return nil }

// Guard implements shim.Engine. Nothing is limited here.
func (e *Engine) Guard(context.Context, shim.Relieve) {}

// Destroy implements shim.Engine.
func (e *Engine) Destroy(ctx context.Context) error {
	if e.cmd == nil || e.cmd.Process == nil {
		return nil
	}
	if err := unix.Kill(e.proc.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	select {
	case <-e.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// killTree kills every descendant of pid until there is none. New ones may be born meanwhile, so it looks again.
func killTree(pid int) {
	const pause = time.Millisecond
	for {
		if signalTree(pid, unix.SIGKILL) == 0 {
			return
		}
		for {
			got, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if got <= 0 || err != nil {
				break
			}
		}
		time.Sleep(pause)
	}
}

// guestArgs names the socket by way of the shim's working directory, which is the state directory: socket paths are at most 107 bytes
// long.
func guestArgs(stateDir, home string) []string {
	socket := fmt.Sprintf("/proc/%d/cwd/%s/%s", os.Getpid(), shim.LinkDir, shim.GuestSocket)
	return []string{
		"--socket", socket, "--run-dir", filepath.Join(stateDir, "guest.d"),
		"--home", home, "--subreaper",
	}
}

// marker is in the environment of everything that a sandbox runs, so that what outlives its shim can be found.
func marker(cfg shim.Config) string { return "PERDURE_SANDBOX=" + string(cfg.Spec.ID) }
