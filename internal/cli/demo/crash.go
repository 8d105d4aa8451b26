package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

const (
	pollEvery = 50 * time.Millisecond
	pollLimit = 30 * time.Second
)

// poll waits until a condition holds.
func poll(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pollLimit, errdefs.New(errdefs.Timeout, "demo_wait", "%s: not after %s", what, pollLimit))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// crash kills the daemon while a command runs, and starts it again when the command has ended without it.
func (s *story) crash(ctx context.Context) error {
	s.chapter("3. The daemon is killed in the middle of a command")
	before, err := s.ram(ctx, name)
	if err != nil {
		return err
	}
	killed := false
	t, err := s.ask(ctx, name, "Count the invoices of each month. It takes a few seconds.", func(ev api.Event) error {
		if killed || event.Type(ev.Type) != event.ToolStarted {
			return nil
		}
		killed = true
		d, err := payload[event.ToolStartedData](ev)
		if err != nil {
			return err
		}
		return s.killAndRestart(ctx, d.ExecID)
	})
	if err != nil {
		return err
	}
	if len(t.finished) != 1 {
		return errdefs.New(errdefs.Internal, "demo_results", "the command has %d results", len(t.finished))
	}
	s.quote(strings.TrimSpace(t.finished[0].Output))
	if err := s.claim(t.finished[0].Collected, "the result of a command that ended while no daemon ran was collected", "%+v", t.finished[0]); err != nil {
		return err
	}
	runs, err := s.read(ctx, name, "runs.log")
	if err != nil {
		return err
	}
	if err := s.claim(strings.Count(runs, "\n") == 1 && t.started == 1, "the command ran once: one line in its runs.log, one start and one result in the log", "runs.log has %q, %d starts", runs, t.started); err != nil {
		return err
	}
	after, err := s.ram(ctx, name)
	if err != nil {
		return err
	}
	return s.claim(before == after, "the interpreter and its RAM outlived the daemon", "%+v, then %+v", before, after)
}

// killAndRestart kills the daemon once the command is at work, and starts it when the command has ended.
func (s *story) killAndRestart(ctx context.Context, exec id.Exec) error {
	data := s.daemon.dir
	// The files of a workspace are readable on the host, so that the command can be watched while no daemon runs.
	if err := poll(ctx, "the command writes its first line", func() bool { return size(findFile(data, "runs.log")) > 0 }); err != nil {
		return err
	}
	pid := s.daemon.pid()
	if err := s.daemon.kill(); err != nil {
		return err
	}
	from := time.Now()
	if ended(data, exec) {
		return errdefs.New(errdefs.Internal, "demo_too_late", "the command had ended before the daemon was killed")
	}
	s.say("kill -9 %d: no daemon runs; %d processes of the sandbox go on", pid, len(processesOf(s.root)))
	if err := poll(ctx, "the command ends", func() bool { return ended(data, exec) }); err != nil {
		return err
	}
	s.say("the command has ended by itself, %.1f s after the kill", time.Since(from).Seconds())
	return s.timed("daemon started again, sandbox adopted", func() (int64, error) { return 0, s.daemon.up(ctx) })
}

// ended reports whether the shim has recorded the end of a command, which it does with or without a daemon.
func ended(data string, exec id.Exec) bool {
	found, err := filepath.Glob(filepath.Join(data, "sessions", "*", "spool", string(exec), "meta.json"))
	if err != nil || len(found) == 0 {
		return false
	}
	var meta struct{ State string }
	b, err := os.ReadFile(found[0])
	if err != nil {
		return false
	}
	lines := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) // the last one counts
	return json.Unmarshal(lines[len(lines)-1], &meta) == nil && meta.State == api.ExecExited
}

func size(path string) int64 {
	if path == "" {
		return 0
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
