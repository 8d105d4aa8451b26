package shim

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/sandbox"
)

// errDead is the error of every call that needs a living sandbox.
func errDead(cause string) error {
	return errdefs.New(errdefs.Unavailable, "sandbox_dead", "the sandbox is dead: %s", cause).
		WithHint("resume the session to get a new one")
}

// server is a shim at work.
type server struct {
	dir    string
	cfg    Config
	ahead  bool // the sandbox was made before its host name was known
	engine Engine
	guest  *guest
	log    *slog.Logger
	clock  clock.Clock
	http   *http.Server
	dead   chan struct{} // closed when the sandbox has died
	gone   chan struct{} // closed when it was destroyed and the shim may end

	replaced atomic.Bool // the spool belongs to another shim of the session: a successor, or until the start has succeeded a predecessor

	life  sync.Mutex // serialises lifecycle calls and guards stale and lent; taken before mu
	stale bool       // the guest's socket is known to be dead
	lent  *spool.Cut // how the spool stood when it was lent to a successor; nil: it was not

	mu     sync.Mutex // guards all below
	record Record
	report *sandbox.RestoreReport
}

// update changes the record and writes it down. A record that cannot be written is logged: the sandbox is worth more.
func (s *server) update(change func(r *Record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.record)
	if err := writeRecord(s.dir, s.record); err != nil {
		s.log.Error("cannot write the record", "error", err)
	}
}

func (s *server) snapshot() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// start boots or restores, and returns when the guest answers.
func (s *server) start(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	began := s.clock.Now()
	if err := s.engine.Start(ctx); err != nil {
		return err
	}
	made := s.clock.Now()
	running := s.engine.Running()
	running.Missing = append(append([]string(nil), s.cfg.Missing...), running.Missing...)
	s.update(func(r *Record) { r.Running = running })
	go s.watch()
	living, stop := s.whileAlive(ctx)
	defer stop()
	if s.cfg.Image != nil {
		if err := s.engine.Nudge(living); err != nil {
			return fmt.Errorf("wake the restored guest: %w", err)
		}
	}
	if err := s.awaitGuest(living); err != nil {
		return err
	}
	connected := s.clock.Now()
	if s.cfg.Image != nil || s.ahead {
		report, err := s.guest.restored(living, s.cfg)
		if err != nil {
			if cause := context.Cause(living); cause != nil {
				err = cause
			}
			return fmt.Errorf("tell the guest who it is: %w", err)
		}
		if s.cfg.Image != nil {
			s.mu.Lock()
			s.report = &report
			s.mu.Unlock()
		}
	}
	s.limit(living)
	go s.guard(ctx)
	s.setState(sandbox.Running)
	s.update(func(r *Record) { r.StartedAt = s.clock.Now() })
	s.own()
	s.log.Info("the guest answers", "engine", made.Sub(began), "guest", connected.Sub(made), "report", s.clock.Now().Sub(connected))
	return nil
}

// guestLimit is how long a guest may take to answer after a boot or restore.
const guestLimit = time.Minute

// whileAlive returns a context that ends when the sandbox dies, and what ends it otherwise. A guest that is dead does not answer: what is asked
// of it would be repeated for the next one that connects.
func (s *server) whileAlive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.dead:
			cancel(errDead(s.snapshot().Cause))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// awaitGuest waits until the guest answers, or the sandbox dies with ctx.
func (s *server) awaitGuest(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_ = s.clock.Sleep(ctx, guestLimit) // ended early by the answer
		cancel(errdefs.New(errdefs.Timeout, "guest_silent", "the guest does not answer after %s", guestLimit))
	}()
	if err := s.guest.Connected(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("wait for the guest: %w", err)
	}
	return nil
}

// watch waits for the death of the sandbox. It is owned by start and ends with the sandbox.
func (s *server) watch() {
	cause := s.engine.Wait()
	s.update(func(r *Record) { r.State, r.Cause = sandbox.Dead, cause })
	if !s.replaced.Load() {
		s.guest.Dead(cause)
	}
	s.log.Info("sandbox ended", "cause", cause)
	close(s.dead)
}

func (s *server) status(context.Context, none) (sandbox.Status, error) {
	r := s.snapshot()
	pids := []int{r.Shim.PID}
	if r.State != sandbox.Dead {
		for _, p := range r.Running.Processes {
			pids = append(pids, p.PID)
		}
	}
	return sandbox.Status{
		ID: r.ID, State: r.State, Cause: r.Cause, StartedAt: r.StartedAt, PIDs: pids, Missing: r.Running.Missing,
	}, nil
}

func (s *server) wait(ctx context.Context, _ none) (sandbox.Status, error) {
	select {
	case <-s.dead:
	case <-s.gone:
	case <-ctx.Done():
		return sandbox.Status{}, context.Cause(ctx)
	}
	return s.status(ctx, none{})
}

// alive returns the state, or an error if there is nothing alive.
func (s *server) alive() (sandbox.State, error) {
	r := s.snapshot()
	if r.State == sandbox.Dead {
		return r.State, errDead(r.Cause)
	}
	return r.State, nil
}

func (s *server) pause(ctx context.Context, _ none) (none, error) {
	s.life.Lock()
	defer s.life.Unlock()
	state, err := s.alive()
	if err != nil || state == sandbox.Paused {
		return none{}, err
	}
	if err := s.engine.Pause(ctx); err != nil {
		return none{}, errdefs.Wrap(err, errdefs.Internal, "pause_failed", "pause the sandbox")
	}
	s.setState(sandbox.Paused)
	return none{}, nil
}

func (s *server) unpause(ctx context.Context, _ none) (none, error) {
	s.life.Lock()
	defer s.life.Unlock()
	state, err := s.alive()
	if err != nil || state == sandbox.Running {
		return none{}, err
	}
	if err := s.reclaim(); err != nil {
		return none{}, err
	}
	if err := s.engine.Unpause(ctx); err != nil {
		return none{}, errdefs.Wrap(err, errdefs.Internal, "unpause_failed", "unpause the sandbox")
	}
	s.setState(sandbox.Running)
	if !s.stale {
		return none{}, nil
	}
	return none{}, s.reconnect(ctx)
}

// setState notes a state, unless the sandbox died meanwhile: death is final.
func (s *server) setState(state sandbox.State) {
	s.update(func(r *Record) {
		if r.State != sandbox.Dead {
			r.State = state
		}
	})
}

func (s *server) restoreReport(context.Context, none) (sandbox.RestoreReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.report == nil {
		return sandbox.RestoreReport{}, errdefs.New(errdefs.NotFound, "not_restored", "this sandbox was booted, not restored")
	}
	return *s.report, nil
}

// destroyRequest says how to end.
type destroyRequest struct {
	// Replaced: another sandbox already runs the same commands and owns the spool, which is left alone.
	Replaced bool
}

func (s *server) destroy(ctx context.Context, req destroyRequest) (none, error) {
	s.life.Lock()
	defer s.life.Unlock()
	select {
	case <-s.gone:
		return none{}, nil
	default:
	}
	if req.Replaced || s.lent != nil && !s.guest.alone() {
		req.Replaced = true // its successor lives, whatever the caller knows of it
	} else if err := s.reclaim(); err != nil {
		s.log.Error("cannot take the spool back", "error", err)
	}
	if req.Replaced {
		s.replaced.Store(true)
		s.guest.close(s.log)
	} else {
		s.guest.Dead("the sandbox was destroyed")
	}
	if err := s.engine.Destroy(ctx); err != nil {
		return none{}, errdefs.Wrap(err, errdefs.Internal, "destroy_failed", "destroy the sandbox")
	}
	if !req.Replaced {
		s.guest.close(s.log)
	}
	if err := emptyDir(s.dir, lockFile, socketFile); err != nil {
		s.log.Error("cannot empty the state directory", "error", err)
	}
	close(s.gone)
	return none{}, nil
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	handle(mux, pathStatus, s.status)
	handle(mux, pathWait, s.wait)
	handle(mux, pathPause, s.pause)
	handle(mux, pathUnpause, s.unpause)
	handle(mux, pathDestroy, s.destroy)
	handle(mux, pathLend, s.lend)
	handle(mux, pathReclaim, s.takeBack)
	handle(mux, pathReport, s.restoreReport)
	mux.HandleFunc("POST "+pathDial, s.dial)
	handle(mux, pathHooks, s.guest.Hooks)
	mux.HandleFunc("POST "+pathCheckpoint, s.checkpoint)
	s.execRoutes(mux)
	s.fileRoutes(mux)
	return mux
}

// removedCheck is how often a shim looks whether its state directory is still there.
const removedCheck = 5 * time.Second

// linger returns when the sandbox was destroyed, or its state directory removed.
func (s *server) linger(ctx context.Context) {
	defer s.hangUp(ctx)
	for {
		select {
		case <-s.gone:
			return
		default:
		}
		// "." and not its path: the shim works inside the directory.
		if _, err := os.Stat(configFile); os.IsNotExist(err) {
			select {
			case <-s.gone:
			default:
				s.log.Info("the state directory was removed: ending")
				_ = s.engine.Destroy(ctx) // nobody is left to tell
			}
			return
		}
		s.sleepOrGone(ctx)
	}
}

func (s *server) sleepOrGone(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	_ = s.clock.Sleep(ctx, removedCheck) // woken early is fine: the loop looks again
}

// lastWords bounds how long the end of a shim waits for answers under way.
const lastWords = time.Second

// hangUp ends the socket once the answers under way are given.
func (s *server) hangUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Debug("calls were cut short by the end", "error", err)
	}
}
