package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
)

// LaunchOptions say how to run a shim.
type LaunchOptions struct {
	Engine       string // path of perdure-engine
	Mounts       bool   // give the shim a mount namespace of its own
	UserMappings bool   // and a user namespace, in which the caller is root
}

// Launch starts a shim for cfg in cfg.Spec.StateDir and returns when its sandbox answers. If it fails, or ctx ends before, nothing
// is left but the log.
func Launch(ctx context.Context, cfg Config, opt LaunchOptions) (*Client, error) {
	dir := cfg.Spec.StateDir
	if err := writeJSON(filepath.Join(dir, configFile), cfg); err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "state_unwritable", "write the sandbox's configuration")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p, err := spawn(dir, opt, r, w, "--dir", dir)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "engine_failed", "start %s", opt.Engine)
	}
	return p.await(ctx, cfg)
}

// process is a shim that this process has started. It is meant to outlive it.
type process struct {
	cmd    *exec.Cmd
	ready  *os.File      // on which it reports
	exited chan struct{} // closed when it has ended
	end    error         // how; valid once exited is closed
}

// answer waits for a startResult. err tells that there was none.
func (p *process) answer(ctx context.Context) (result startResult, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.ready.SetReadDeadline(time.Now()) })
	defer stop()
	err = json.NewDecoder(p.ready).Decode(&result)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return result, err
}

// kill ends the process, and returns when what it wrote it has written.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.exited
}

// await returns when the sandbox in cfg.Spec.StateDir answers. If it fails, or ctx ends before, nothing is left but the log.
func (p *process) await(ctx context.Context, cfg Config) (*Client, error) {
	defer p.ready.Close()
	dir := cfg.Spec.StateDir
	result, err := p.answer(ctx)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, io.EOF):
		<-p.exited
		err = errdefs.New(errdefs.Internal, "engine_failed", "the shim ended while starting (%v): %s", p.end, logTail(dir))
	case err == nil && result.Error == nil:
		return newClient(dir, cfg), nil
	case err == nil:
		<-p.exited // the shim cleans up first
		return nil, errors.Join(result.Error.err(), emptyDir(dir, logFile))
	}
	p.kill()
	return nil, errors.Join(err, reap(dir), emptyDir(dir, logFile))
}

// spawn starts a shim process on dir. It closes theirs, the end of the connection for the process, and keeps ours.
func spawn(dir string, opt LaunchOptions, ours, theirs *os.File, args ...string) (*process, error) {
	defer theirs.Close()
	p, err := start(dir, opt, theirs, args)
	if err != nil {
		ours.Close()
		return nil, err
	}
	p.ready = ours
	// The goroutine ends with the shim. It only reaps.
	go func() { p.end = p.cmd.Wait(); close(p.exited) }()
	return p, nil
}

func start(dir string, opt LaunchOptions, ready *os.File, args []string) (*process, error) {
	lock, err := openLock(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the shim keeps its copy, and the lock with it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another shim runs in %s: %w", dir, err)
	}
	out, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(opt.Engine, append([]string{"shim"}, args...)...)
	cmd.Env = HostEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{ready, lock} // readyFD, lockFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if opt.Mounts {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // Go makes / private right after
	}
	if opt.UserMappings {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, exited: make(chan struct{})}, nil
}

// HostEnv returns what of the daemon's environment shims, and the commands of drivers without isolation, may see. The rest holds
// keys of models and whatever else its owner's shell exported.
func HostEnv(env []string) []string {
	var kept []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "HOME", "USER", "LANG", "TZ", "TERM", "TMPDIR":
			kept = append(kept, kv)
		default:
			if strings.HasPrefix(name, "LC_") {
				kept = append(kept, kv)
			}
		}
	}
	return kept
}

const logTailBytes = 600

// logTail returns the end of the shim's log, for an error message.
func logTail(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, logFile))
	if err != nil {
		return err.Error()
	}
	if len(b) > logTailBytes {
		b = b[len(b)-logTailBytes:]
	}
	return string(b)
}
