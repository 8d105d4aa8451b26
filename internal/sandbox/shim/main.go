package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	readyFD = 3 // gets one startResult; a spare's is a socket: it gets another, answers with a claim, and gets the startResult
	lockFD  = 4 // the lock file, already locked
)

// startResult tells the driver how the start went.
type startResult struct {
	Error *wireError `json:",omitempty"`
}

// Main runs a shim in stateDir until its sandbox is destroyed, and returns the exit code. engines maps drivers to their engines.
func Main(ctx context.Context, stateDir string, engines map[string]Factory) int {
	log, ready := enter()
	return run(ctx, stateDir, log, ready, false, func(cfg Config) (Engine, error) {
		factory, ok := engines[cfg.Driver]
		if !ok {
			return nil, errdefs.New(errdefs.Invalid, "driver_unknown", "the engine has no driver %q", cfg.Driver)
		}
		return factory(cfg, stateDir, log)
	})
}

// enter makes a shim of this process.
func enter() (*slog.Logger, *os.File) {
	unix.CloseOnExec(readyFD)
	unix.CloseOnExec(lockFD)
	// A terminal that goes away, or a ^C meant for the daemon, is not meant for the sandbox.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGTTOU, unix.SIGTSTP)
	return slog.New(slog.NewTextHandler(os.Stderr, nil)), os.NewFile(readyFD, "ready")
}

// run runs a shim. ahead tells that the engine's sandbox was made before its config was known.
func run(ctx context.Context, dir string, log *slog.Logger, ready *os.File, ahead bool, engine func(cfg Config) (Engine, error)) int {
	s, err := serve(ctx, dir, ahead, engine, log)
	if err != nil {
		log.Error("cannot start", "error", err)
	}
	// The daemon may have died meanwhile. Then the next one finds the sandbox by its state directory.
	if werr := report(ready, err); werr != nil {
		log.Warn("nobody waits for the start", "error", werr)
	}
	ready.Close()
	if err != nil {
		return 1
	}
	s.linger(ctx)
	return 0
}

func report(to io.Writer, err error) error {
	var result startResult
	if err != nil {
		result.Error = toWire(err)
	}
	return json.NewEncoder(to).Encode(result)
}

// serve starts everything. On failure it leaves nothing but the log.
func serve(ctx context.Context, dir string, ahead bool, makeEngine func(cfg Config) (Engine, error), log *slog.Logger) (*server, error) {
	// Socket paths are at most 107 bytes long, state directories may be longer. So sockets have relative names.
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	cfg, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	engine, err := makeEngine(cfg)
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
		dir: dir, cfg: cfg, ahead: ahead, engine: engine, guest: guest, log: log, clock: clock.System{},
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
