package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"perdure.dev/perdure/internal/errdefs"
)

// Config is what a Server is made from. Backend, Idempotency and Log must be set.
type Config struct {
	Backend     Backend
	Idempotency IdempotencyStore
	Log         *slog.Logger
	Tokens      []Token       // who may use a TCP listener
	Hosts       []string      // DNS names accepted in the Host header on TCP, besides localhost
	Heartbeat   time.Duration // of event streams; 0 means 15 s
}

const defaultHeartbeat = 15 * time.Second

// errStopping is the cause with which streams end when the server stops.
var errStopping = errdefs.New(errdefs.Unavailable, "daemon_stopping", "the daemon is stopping").
	WithHint("Try again in a moment; nothing is lost.")

// Server serves the API. Its methods may be called at the same time.
type Server struct {
	cfg  Config
	api  huma.API
	http *http.Server
	stop context.CancelCauseFunc // ends streams, not operations

	answers []reflect.Type // of all JSON operations, for the description

	hijacked sync.WaitGroup // attached terminals, which net/http no longer counts
}

// New makes a Server. It serves nothing before Serve; streams end when ctx does.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	for _, t := range cfg.Tokens {
		if err := t.check(); err != nil {
			return nil, err
		}
	}
	s := &Server{cfg: cfg}
	mux := newRouter(cfg.Idempotency)
	s.api = newAPI(mux)
	s.routes()
	run, stop := context.WithCancelCause(ctx)
	s.stop = stop
	s.http = &http.Server{
		Handler:           s.guard(mux),
		BaseContext:       func(net.Listener) context.Context { return run },
		ConnContext:       markUnix,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Serve answers on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return errdefs.Wrap(err, errdefs.Unavailable, "listen_failed", "serving on %s", l.Addr())
	}
	return nil
}

// Shutdown stops listening, ends streams (whose readers resume elsewhere), and waits for the operations in progress until
// ctx ends; then it cuts what is left.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop(errStopping)
	err := s.http.Shutdown(ctx)
	done := make(chan struct{})
	go func() { s.hijacked.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}

// routes registers every operation.
func (s *Server) routes() {
	s.sessionRoutes()
	s.lifecycleRoutes()
	s.eventRoutes()
	s.execRoutes()
	s.attachRoutes()
	s.fileRoutes()
	s.portRoutes()
	s.tarRoutes()
	s.checkpointRoutes()
	s.imageRoutes()
	s.archiveRoutes()
	s.systemRoutes()
}
