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
	cmd, ready, err := spawn(dir, opt)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "engine_failed", "start %s", opt.Engine)
	}
	defer ready.Close()
	// The goroutine ends with the shim. It only reaps: the shim is meant to outlive this process.
	exited := make(chan struct{})
	var end error // of the shim; set when exited is closed
	go func() { end = cmd.Wait(); close(exited) }()

	stop := context.AfterFunc(ctx, func() { ready.Close() })
	defer stop()
	var result startResult
	err = json.NewDecoder(ready).Decode(&result)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, io.EOF):
		<-exited
		err = errdefs.New(errdefs.Internal, "engine_failed", "the shim ended while starting (%v): %s", end, logTail(dir))
	case err == nil && result.Error == nil:
		return newClient(dir, cfg), nil
	case err == nil:
		<-exited // the shim cleans up first
		return nil, errors.Join(result.Error.err(), emptyDir(dir, logFile))
	}
	_ = cmd.Process.Kill() // it may have ended by itself
	<-exited               // what it wrote to the spool, it has written
	return nil, errors.Join(err, reap(dir), emptyDir(dir, logFile))
}

// spawn starts the shim process and returns the pipe on which it reports.
func spawn(dir string, opt LaunchOptions) (*exec.Cmd, *os.File, error) {
	lock, err := openLock(dir)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close() // the shim keeps its copy, and the lock with it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, nil, fmt.Errorf("another shim runs in %s: %w", dir, err)
	}
	out, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	cmd := exec.Command(opt.Engine, "shim", "--dir", dir)
	cmd.Env = HostEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{w, lock} // readyFD, lockFD
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
		r.Close()
		return nil, nil, err
	}
	return cmd, r, nil
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
