package demo

import (
	"context"
	"os"
	"strings"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

const (
	pollEvery = 50 * time.Millisecond
	pollLimit = 60 * time.Second
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
		return s.killAndRestart(ctx)
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
func (s *story) killAndRestart(ctx context.Context) error {
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
	if findFile(data, "counted.txt") != "" {
		return errdefs.New(errdefs.Internal, "demo_too_late", "the command had ended before the daemon was killed")
	}
	s.say("kill -9 %d: no daemon runs; %d processes of the sandbox go on", pid, len(processesOf(s.root)))
	if err := poll(ctx, "the command ends", func() bool { return findFile(data, "counted.txt") != "" }); err != nil {
		return err
	}
	s.say("the command has ended by itself, %.1f s after the kill", time.Since(from).Seconds())
	// Its file is there a moment before its end.
	time.Sleep(settle)
	return s.timed("daemon started again, sandbox adopted", func() (int64, error) { return 0, s.daemon.up(ctx) })
}

// settle is what a shell may take from its last command to its end. Were it longer, the result would not count as collected, and
// the demo would say so.
const settle = 500 * time.Millisecond

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
