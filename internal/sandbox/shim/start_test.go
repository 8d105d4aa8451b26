package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/guest/link"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/sandbox"
)

// mortalEngine restores at once, and lives until it is killed.
type mortalEngine struct {
	stillEngine
	killed chan struct{}
}

func (mortalEngine) Start(context.Context) error { return nil }
func (mortalEngine) Running() Running            { return Running{} }
func (mortalEngine) Nudge(context.Context) error { return nil }
func (e mortalEngine) Wait() string              { <-e.killed; return "the plug" }

// TestS3_DeathBeforeTheGuestHasReported kills a sandbox whose restored guest has dialled and was asked what came back. It never answers,
// and no other guest will dial.
func TestS3_DeathBeforeTheGuestHasReported(t *testing.T) {
	dir := t.TempDir()
	s, err := spool.Open(filepath.Join(dir, "spool"), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := holdSpool(filepath.Join(dir, "spool"))
	if err != nil {
		t.Fatal(err)
	}
	socket, log := filepath.Join(dir, "s"), slog.New(slog.DiscardHandler)
	l, err := link.Open(t.Context(), link.Config{Socket: socket, Spool: s, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{Link: l, spool: s, hold: hold}
	t.Cleanup(func() { g.close(log) })
	e := mortalEngine{killed: make(chan struct{})}
	srv := &server{
		dir: t.TempDir(), engine: e, guest: g, log: log, clock: clock.System{}, dead: make(chan struct{}), record: Record{State: sandbox.Running},
		cfg: Config{Image: &sandbox.Image{Dir: dir}},
	}
	srv.replaced.Store(true)

	asked := make(chan error, 1)
	go func() { asked <- guestThatIsAsked(socket) }()
	ended := make(chan error, 1)
	go func() { ended <- srv.start(t.Context()) }()
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	close(e.killed)
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "the plug") {
			t.Errorf("the start ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the start waits for a guest that is dead")
	}
}

// guestThatIsAsked dials as a restored guest does, and leaves when it is asked for something.
func guestThatIsAsked(socket string) error {
	nc, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	hello := wire.AppendFrame(nil, wire.TypeHello, fmt.Appendf(nil, `{"Version":%d,"Guest":"g","PID":1}`, wire.Version))
	if _, err := nc.Write(hello); err != nil {
		return err
	}
	var buf []byte
	for {
		t, _, err := wire.ReadFrame(nc, &buf)
		if err != nil {
			return errors.Join(err, errors.New("nobody asked the guest"))
		}
		if t == wire.TypeRequest {
			return nil
		}
	}
}
