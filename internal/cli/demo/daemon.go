package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
)

// daemon is a `perdure serve` of this build, in a process of its own.
type daemon struct {
	dir    string // its data directory
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process was reaped
	result error         // of the process; valid once ended is closed
}

const (
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second
)

// up starts the daemon and returns when it answers.
func (d *daemon) up(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(d.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not CommandContext: ^C must not end it before the cleaning up.
	d.cmd = exec.Command(self, "serve", "--data", d.dir)
	d.cmd.Dir = "/"
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { // ends with the process
		d.result = cmd.Wait()
		close(ended)
	}(d.cmd, d.ended)
	return d.answers(ctx)
}

// answers waits for the first answer.
func (d *daemon) answers(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the wait, or with the process
		select {
		case <-d.ended:
			cancel(errdefs.New(errdefs.Unavailable, "daemon_not_started", "the daemon ended at once: %v", d.result))
		case <-ctx.Done():
		}
	}()
	c, err := client.New(client.Options{Socket: d.socket(), RetryFor: startLimit})
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := c.Health(ctx)
	if err == nil && h.PID != d.pid() {
		err = errdefs.New(errdefs.Conflict, "other_daemon", "process %d answers, not our %d", h.PID, d.pid())
	}
	return err
}

// kill is SIGKILL, and returns when the process is gone.
func (d *daemon) kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return err
	}
	<-d.ended
	return nil
}

// stop asks the daemon to end, and returns when it has. One that does not is killed, which is an error.
func (d *daemon) stop(ctx context.Context) error {
	if !d.running() {
		return nil
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	late := time.NewTimer(stopLimit)
	defer late.Stop()
	select {
	case <-d.ended:
		if d.result != nil {
			return fmt.Errorf("the daemon did not stop in order: %w", d.result)
		}
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	if err := d.kill(); err != nil {
		return err
	}
	return errdefs.New(errdefs.Timeout, "daemon_stuck", "the daemon did not stop and was killed")
}

func (d *daemon) running() bool {
	if d.cmd == nil || d.ended == nil {
		return false
	}
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

func (d *daemon) pid() int        { return d.cmd.Process.Pid }
func (d *daemon) socket() string  { return filepath.Join(d.dir, api.SocketName) }
func (d *daemon) logPath() string { return filepath.Join(d.dir, env.LogName) }

const tailSize = 3000 // bytes

// logTail is the end of the daemon's log, or "".
func (s *story) logTail() string {
	if s.daemon == nil {
		return ""
	}
	f, err := os.Open(s.daemon.logPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-tailSize), io.SeekStart) // then the tail is longer
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", "\n  ")
}

// tempDir makes the directory of a run. Sockets lie deep below it, and their paths may have 107 bytes.
func tempDir() (string, error) {
	base := os.TempDir()
	if len(base) > 24 {
		base = "/tmp"
	}
	return os.MkdirTemp(base, "pd-")
}
