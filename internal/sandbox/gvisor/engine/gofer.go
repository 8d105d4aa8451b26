package engine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/sandbox/shim"
)

// process returns one of the sandbox's processes by its name.
func (e *Engine) process(name string) shim.Process {
	for _, p := range e.running.Processes {
		if p.Name == name {
			return p
		}
	}
	return shim.Process{}
}

// watchGofer ends the sandbox when the process that serves its files dies. Without it no file can be opened, and a command is "not found".
// gVisor looks after a sandbox that it has booted, but not after one that it has restored (runsc/boot, startGoferMonitor).
func (e *Engine) watchGofer() error {
	gofer, kernel := e.process("gofer"), e.process("sandbox")
	fd, err := unix.PidfdOpen(gofer.PID, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	if !gofer.Alive() { // its number may be another's by now
		unix.Close(fd)
		return errors.New("the process that serves the files has died")
	}
	// The goroutine ends with the gofer, which ends with the sandbox.
	go func() {
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				e.log.Error("cannot watch the process that serves the files", "error", err)
				return
			}
			if n > 0 {
				break
			}
		}
		if kernel.Alive() {
			e.filesLost.Store(true)
			kernel.Kill()
		}
	}()
	return nil
}
