package shim

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/link"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/sandbox"
)

// stillEngine is a sandbox in which nothing happens.
type stillEngine struct{ Engine }

func (stillEngine) Pause(context.Context) error   { return nil }
func (stillEngine) Unpause(context.Context) error { return nil }

func newTestServer(t *testing.T, spoolDir string) *server {
	t.Helper()
	s, err := spool.Open(spoolDir, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := holdSpool(spoolDir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.Open(t.Context(), link.Config{Socket: filepath.Join(t.TempDir(), "s"), Spool: s})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	g := &guest{Link: l, spool: s, hold: hold}
	t.Cleanup(func() { g.close(log) })
	return &server{
		dir: t.TempDir(), engine: stillEngine{}, guest: g, log: log, clock: clock.System{}, record: Record{State: sandbox.Running},
	}
}

func content(t *testing.T, s *server) string {
	t.Helper()
	out, err := s.guest.Execs().Output(t.Context(), "x", sandbox.Stdout, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	data, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A successor whose guest has connected fits the spool to an earlier time. When it fails after that, the old sandbox goes on as if
// nothing had been.
func TestS4_FailedSuccessorLeavesTheSpool(t *testing.T) {
	dir := spoolWithRunning(t)
	s := newTestServer(t, dir)
	r, err := s.guest.spool.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Append(sandbox.Stdout, 0, []byte("first second")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.lend(t.Context(), none{}); err != nil {
		t.Fatal(err)
	}

	next, err := spool.Open(dir, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := holdSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	x, err := next.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Resume(sandbox.Stdout, 3, 5); err != nil {
		t.Fatal(err)
	}
	if err := x.Append(sandbox.Stdout, 5, []byte(" other")); err != nil {
		t.Fatal(err)
	}
	if _, err := next.MarkLost("it failed"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.takeBack(t.Context(), reclaimRequest{}); errdefs.CodeOf(err) != "sandbox_replaced" {
		t.Errorf("taking back what a living successor has: %v", err)
	}
	hold.Close()
	next.Close()

	if _, err := s.takeBack(t.Context(), reclaimRequest{}); err != nil {
		t.Fatal(err)
	}
	st, err := s.guest.Execs().Status(t.Context(), "x")
	if err != nil || st.State != sandbox.ExecRunning || st.Cause != "" {
		t.Errorf("its command: %+v, %v", st, err)
	}
	if got := content(t, s); got != "first second" {
		t.Errorf("its output: %q", got)
	}
	if err := r.Append(sandbox.Stdout, 12, []byte(" third")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, s); got != "first second third" {
		t.Errorf("its output goes on: %q", got)
	}
}

// One that dies while it stands still for a successor loses its commands only when the spool is its own again.
func TestS3_DeathWhileLent(t *testing.T) {
	dir := spoolWithRunning(t)
	s := newTestServer(t, dir)
	s.engine, s.dead = deadEngine{}, make(chan struct{})
	if _, err := s.lend(t.Context(), none{}); err != nil {
		t.Fatal(err)
	}
	s.watch()
	if got := stored(t, dir); got != sandbox.ExecRunning {
		t.Errorf("the successor's command is %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.takeBack(ctx, reclaimRequest{Run: true}); err != nil {
		t.Fatal(err)
	}
	if st, err := s.guest.Execs().Wait(ctx, "x"); err != nil || st.State != sandbox.ExecLost || st.Cause != "the plug" {
		t.Errorf("its command: %+v, %v", st, err)
	}
}

type deadEngine struct{ stillEngine }

func (deadEngine) Wait() string { return "the plug" }
