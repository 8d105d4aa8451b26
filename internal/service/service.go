package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/workspace"
)

// Rows is what the service reads beside the logs.
type Rows interface {
	// Session returns a row by id or name. Error: session_not_found.
	Session(ctx context.Context, ref string) (store.Session, error)
	// Sessions returns a page of rows in the order of their making, and whether there are more.
	Sessions(ctx context.Context, f store.Filter) (list []store.Session, more bool, err error)
	Checkpoint(ctx context.Context, c id.Checkpoint) (store.Checkpoint, error)
	Checkpoints(ctx context.Context, s id.Session) ([]store.Checkpoint, error)
	// CheckpointByRef finds a checkpoint that the session can go to, its own or an ancestor's from before the fork: by id, or by message the
	// newest. Error: checkpoint_not_found.
	CheckpointByRef(ctx context.Context, s id.Session, ref string) (store.Checkpoint, error)
	DeleteSession(ctx context.Context, s id.Session) (store.Deletion, error)
	// Event returns an event by its id, from whichever log. Error: event_not_found.
	Event(ctx context.Context, e id.Event) (event.Event, error)
	// Import takes in logs from elsewhere, ancestors first, and appends to the last of them: all or nothing. Errors: session_exists, name_taken, log_corrupt.
	Import(ctx context.Context, logs []store.Log, drafts []event.Draft) ([]event.Event, error)
	// Verify checks the hash chain of a log and the rows folded from it.
	Verify(ctx context.Context, ref string) (session.Report, error)
}

// Config is what a Service is made of. Every field but DefaultModel is required.
type Config struct {
	Log    event.Log
	Rows   Rows
	Dirs   workspace.Dirs
	Images *snapshot.Store
	// ImageStore has the images that workspaces start from.
	ImageStore image.Store
	Drivers    map[string]sandbox.Driver
	Harness    agent.Harness // drives every session that has a model
	// Reachable fails with a clear error for a spec whose model this daemon cannot ask. Only new sessions are held to it: one that exists
	// misses its model when it is to be asked, and until then is what it was.
	Reachable func(ctx context.Context, spec event.Spec) error
	Clock     clock.Clock
	Logger    *slog.Logger
	Build     api.BuildInfo

	// ImageCache is how many bytes memory images may take as files, beside the store that has them all.
	ImageCache int64

	Idle  IdleDefaults
	Hooks HookTime
	Auto  AutoDefaults

	DefaultDriver string
	DefaultModel  string
}

// Service implements the interfaces of server.Backend.
type Service struct {
	cfg         Config
	checkpoints *checkpoint.Store
	owner       id.Lease
	started     time.Time

	run  context.Context // ends when the service stops; the parent of everything that outlives a request
	stop context.CancelCauseFunc
	jobs sync.WaitGroup // goroutines under run

	// gc is held for reading while something exists that nothing refers to yet (a new layer), and for writing while what nothing refers to
	// is deleted.
	gc sync.RWMutex

	// images is held for reading while a session is made that no log knows yet, and for writing while an image that nothing needs is deleted.
	images sync.RWMutex

	sealing sync.Mutex // held while a checkpoint is being made durable

	idle  *idle.Scheduler // of the sessions that have a sandbox
	timed *idle.Scheduler // of those of which checkpoints are taken by the clock
	meter *idle.Meter

	forwards forwards

	mu      sync.Mutex // guards what follows
	lives   map[id.Session]*live
	using   map[id.Checkpoint]int // how many restores there are of each
	closing bool
}

var errStopping = errdefs.New(errdefs.Unavailable, "stopping", "the daemon is stopping").
	WithHint("commands and sandboxes go on; start the daemon again: perdure serve")

// New returns a service. ctx bounds everything that it does in the background; Stop ends it earlier.
func New(ctx context.Context, cfg Config) *Service {
	if cfg.Auto.Risks == nil && cfg.Auto.Keep == (checkpoint.Retention{}) { // nothing was said
		cfg.Auto.Keep.Last = keepLast
	}
	run, stop := context.WithCancelCause(ctx)
	return &Service{
		cfg: cfg, checkpoints: checkpoint.NewStore(cfg.Dirs, cfg.Images), owner: id.NewLease(), started: cfg.Clock.Now(),
		idle: idle.NewScheduler(cfg.Clock), timed: idle.NewScheduler(cfg.Clock), meter: idle.NewMeter(cfg.Clock), run: run, stop: stop, lives: map[id.Session]*live{}, using: map[id.Checkpoint]int{},
		forwards: forwards{open: map[uint16]*forward{}},
	}
}

// Stop ends the harnesses and returns when they are gone. Sandboxes and commands go on without it.
func (s *Service) Stop() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.stop(errStopping)
	s.jobs.Wait()
}

// goroutine runs f as a job of the service. It reports false when the service is stopping.
func (s *Service) goroutine(f func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.jobs.Add(1)
	go func() {
		defer s.jobs.Done()
		f(s.run)
	}()
	return true
}

// live returns the live object of a session, by id or name.
func (s *Service) live(ctx context.Context, ref string) (*live, error) {
	s.mu.Lock()
	_, known := s.lives[id.Session(ref)] // until it is deleted: no need to look for it in the store
	s.mu.Unlock()
	if known {
		return s.liveByID(ctx, id.Session(ref))
	}
	row, err := s.cfg.Rows.Session(ctx, ref)
	if err != nil {
		return nil, err
	}
	return s.liveByID(ctx, row.ID)
}

func (s *Service) liveByID(ctx context.Context, sid id.Session) (*live, error) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil, errStopping
	}
	l := s.lives[sid]
	if l == nil {
		l = newLive(s, sid)
		s.lives[sid] = l
	}
	s.mu.Unlock()
	// Others may be waiting for the same object, so its loading does not end with this request.
	if err := l.load(context.WithoutCancel(ctx)); err != nil {
		if isNotFound(err) {
			s.forget(l)
		}
		return nil, err
	}
	return l, nil
}

// forget drops a live object whose session is gone or could not be loaded.
func (s *Service) forget(l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lives[l.id] == l {
		delete(s.lives, l.id)
	}
}

// driver returns the driver of a session's spec.
func (s *Service) driver(name string) (sandbox.Driver, error) {
	d, ok := s.cfg.Drivers[name]
	if !ok {
		return nil, errdefs.New(errdefs.Invalid, "unknown_driver", "there is no driver %q", name).
			WithHint("perdure doctor lists the drivers of this machine")
	}
	return d, nil
}

// usable returns the driver if it can run sandboxes here.
func (s *Service) usable(ctx context.Context, name string) (sandbox.Driver, sandbox.Capabilities, error) {
	d, err := s.driver(name)
	if err != nil {
		return nil, sandbox.Capabilities{}, err
	}
	caps := d.Capabilities(ctx)
	if !caps.Available {
		e := errdefs.New(errdefs.Unavailable, "driver_unavailable", "the %s driver cannot run here: %s", name, joinMissing(caps.Missing))
		hint := "perdure doctor says what is missing"
		if caps.Hint != "" {
			hint = caps.Hint
		}
		if caps.Isolation != "none" {
			hint += "; --driver process runs without any isolation"
		}
		return nil, caps, e.WithHint("%s", hint)
	}
	return d, caps, nil
}

// at says that an operation has come to a named point. See workspace.Dirs.
func (s *Service) at(point string) { s.cfg.Dirs.At(point) }

// endSandbox destroys a sandbox and removes its state directory.
func (s *Service) endSandbox(ctx context.Context, sb sandbox.Sandbox) error {
	s.at("sandbox.destroy")
	if err := sb.Destroy(ctx); err != nil {
		return err
	}
	s.at("sandbox.destroyed")
	return s.cfg.Dirs.Trash(s.cfg.Dirs.Sandbox(sb.ID()))
}

func joinMissing(missing []string) string {
	if len(missing) == 0 {
		return "it does not say why"
	}
	out := missing[0]
	for _, m := range missing[1:] {
		out += "; " + m
	}
	return out
}

// isNotFound reports whether what was asked for does not exist.
func isNotFound(err error) bool {
	return errdefs.KindOf(err) == errdefs.NotFound
}

func isStopping(err error) bool {
	return errors.Is(err, errStopping) || errors.Is(err, context.Canceled)
}

// statusRunning reports whether somebody should be driving the session.
func statusRunning(st session.State) bool { return st.Status == session.StatusRunning }
