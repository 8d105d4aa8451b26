package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// Files that a shim inherits.
const (
	readyFD = 3 // gets one startResult
	lockFD  = 4 // the lock file, already locked
)

// startResult tells the driver how the start went.
type startResult struct {
	Error *wireError `json:",omitempty"`
}

// Main runs a shim in stateDir until its sandbox is destroyed, and returns the exit code. engines maps drivers to their engines.
func Main(ctx context.Context, stateDir string, engines map[string]Factory) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	unix.CloseOnExec(readyFD)
	unix.CloseOnExec(lockFD)
	// A terminal that goes away, or a ^C meant for the daemon, is not meant for the sandbox.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGTTOU, unix.SIGTSTP)
	ready := os.NewFile(readyFD, "ready")
	s, err := serve(ctx, stateDir, engines, log)
	var result startResult
	if err != nil {
		log.Error("cannot start", "error", err)
		result.Error = toWire(err)
	}
	// The daemon may have died meanwhile. Then the next one finds the sandbox by its state directory.
	if werr := json.NewEncoder(ready).Encode(result); werr != nil {
		log.Warn("nobody waits for the start", "error", werr)
	}
	ready.Close()
	if err != nil {
		return 1
	}
	s.linger(ctx)
	return 0
}

// serve starts everything. On failure it leaves nothing but the log.
func serve(ctx context.Context, dir string, engines map[string]Factory, log *slog.Logger) (*server, error) {
	// Socket paths are at most 107 bytes long, state directories may be longer. So sockets have relative names.
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	cfg, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	factory, ok := engines[cfg.Driver]
	if !ok {
		return nil, errdefs.New(errdefs.Invalid, "driver_unknown", "the engine has no driver %q", cfg.Driver)
	}
	engine, err := factory(cfg, dir, log)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(LinkDir, 0o700); err != nil {
		return nil, err
	}
	guest, err := newGuest(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	s := &server{
		dir: dir, cfg: cfg, engine: engine, guest: guest, log: log, clock: clock.System{},
		dead: make(chan struct{}), gone: make(chan struct{}),
	}
	s.replaced.Store(cfg.Image != nil) // a restore that fails loses nothing: see own
	self, err := ProcessOf("shim", os.Getpid())
	if err != nil {
		return nil, err
	}
	s.update(func(r *Record) {
		*r = Record{
			ID: cfg.Spec.ID, Driver: cfg.Driver, Version: cfg.Version, Shim: self, SpoolDir: cfg.Spec.SpoolDir,
			State: sandbox.Running, StartedAt: s.clock.Now(),
		}
	})
	if err := s.start(ctx); err != nil {
		err = errors.Join(err, engine.Destroy(ctx))
		guest.close(log)
		return nil, errors.Join(err, emptyDir(dir, lockFile, logFile))
	}
	l, err := net.Listen("unix", socketFile)
	if err != nil {
		s.replaced.Store(cfg.Image != nil)
		return nil, errors.Join(fmt.Errorf("listen for the daemon: %w", err), engine.Destroy(ctx))
	}
	s.http = &http.Server{Handler: s.handler(), BaseContext: func(net.Listener) context.Context { return ctx }}
	// Owned by the server; ended by hangUp.
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the socket failed", "error", err)
		}
	}()
	return s, nil
}
