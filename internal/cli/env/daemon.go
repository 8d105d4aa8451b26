package env

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"perdure.dev/perdure/internal/errdefs"
)

// answers reports whether something listens on a socket.
func answers(ctx context.Context, socket string) bool {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

const (
	spawnLimit = 30 * time.Second
	spawnPoll  = 15 * time.Millisecond
	// spawnGrace is how long another daemon, started at the same moment by somebody else, may take after ours has given way.
	spawnGrace = 3 * time.Second
	logTail    = 2048 // bytes of the log in an error
)

// LogName is the name of the daemon's log in its data directory.
const LogName = "daemon.log"

// SpawnDaemon starts this program's own serve command with flags, detached, and returns when it answers.
func SpawnDaemon(ctx context.Context, dataDir, socket string, flags ...string) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return cannotStart(err, "making the data directory", "")
	}
	self, err := os.Executable()
	if err != nil {
		return cannotStart(err, "finding this program", "")
	}
	path := filepath.Join(dataDir, LogName)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return cannotStart(err, "opening the log", "")
	}
	defer log.Close()
	start, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return cannotStart(err, "opening the log", "")
	}
	// Not CommandContext: the daemon outlives this program.
	cmd := exec.Command(self, append([]string{"serve", "--data", dataDir}, flags...)...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return cannotStart(err, "starting it", "")
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the daemon, or with this program
	return awaitDaemon(ctx, socket, ended, func() string { return tail(log, start) })
}

// awaitDaemon waits until the socket answers.
func awaitDaemon(ctx context.Context, socket string, ended <-chan error, said func() string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, spawnLimit, errdefs.New(errdefs.Timeout, "daemon_start_timeout", "the daemon does not answer after %s", spawnLimit))
	defer cancel()
	poll := time.NewTicker(spawnPoll)
	defer poll.Stop()
	var failure error
	var grace <-chan time.Time
	for {
		if answers(ctx, socket) {
			return nil
		}
		select {
		case <-poll.C:
		case err := <-ended:
			if err == nil {
				err = errors.New("it ended at once")
			}
			failure, ended = err, nil
			grace = time.After(spawnGrace)
		case <-grace:
			return cannotStart(failure, "it ended", said())
		case <-ctx.Done():
			return cannotStart(context.Cause(ctx), "waiting for it", said())
		}
	}
}

func cannotStart(err error, doing, said string) error {
	e := &errdefs.Error{Kind: errdefs.Unavailable, Code: "daemon_not_started", Message: "the daemon could not be started: " + doing, Err: err,
		Hint: "Run perdure serve in a terminal to see more."}
	if said != "" {
		e.Hint = "Its log says:\n    " + strings.ReplaceAll(said, "\n", "\n    ")
	}
	return e
}

// tail returns the end of what a log says since a position.
func tail(log io.ReaderAt, since int64) string {
	data, err := io.ReadAll(io.NewSectionReader(log, since, 1<<20))
	if err != nil {
		return ""
	}
	if len(data) > logTail {
		data = data[len(data)-logTail:]
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return strings.TrimSpace(string(data))
}
