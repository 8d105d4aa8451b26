// Package daemon wires Perdure together: it alone, with the engine's main, imports implementations.
//
// Run starts in order (lock and database, drivers, recovery, listeners) and stops in reverse: listeners first, then what they
// could ask of, the database last. Sandboxes are not the daemon's: they go on without it.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/image/oci"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/model/anthropic"
	"perdure.dev/perdure/internal/model/openai"
	"perdure.dev/perdure/internal/model/scripted"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/process"
	"perdure.dev/perdure/internal/server"
	"perdure.dev/perdure/internal/service"
	"perdure.dev/perdure/internal/store/sqlite"
	"perdure.dev/perdure/internal/workspace"
)

// Config says how to run. Every field but DataDir may be zero.
type Config struct {
	DataDir string
	Listen  string // TCP address; "": the Unix socket only
	// HostNames are DNS names under which it may be addressed over TCP, besides localhost.
	HostNames []string
	// ImageCache is how many bytes memory images may take as files, beside the store that has them all.
	ImageCache     int64
	PlainSnapshots bool // the memory images of new sessions are sealed with a key that is no secret
	// What becomes of sessions that nobody uses and that say nothing else themselves; 0: nothing.
	IdlePause, IdleSuspend, IdleArchive, ExpireAfter time.Duration
	// Checkpoints say when checkpoints are taken of sessions that say nothing else themselves; nil: as usual.
	Checkpoints *api.ConfigureCheckpoints
	// HookTime is how long a hook in a workspace may take, all together three times as long; 0: 10 s.
	HookTime time.Duration

	Logger *slog.Logger
	Getenv func(string) string // for model endpoints and keys
	Build  api.BuildInfo
	// Ready is called once the daemon answers.
	Ready func()
	// Step is called at each named point between two changes that a crash may tear apart. Nil in production.
	Step func(point string)
}

// shutdownTime is how long requests in progress may take to end.
const shutdownTime = 10 * time.Second

// Run serves until ctx ends. It returns nil after an orderly stop.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	clk := clock.System{}
	dirs := workspace.Dirs{Root: cfg.DataDir, Step: cfg.Step}
	if err := refuseWithoutDatabase(cfg.DataDir); err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, sqlite.Options{Dir: cfg.DataDir, Clock: clk, Logger: cfg.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := dirs.Make(); err != nil {
		return err
	}
	// A start takes a third of the time when most of a sandbox is there already.
	isolated := gvisor.New(gvisor.Options{Cache: filepath.Join(cfg.DataDir, "cache"), Spare: true, Log: cfg.Logger})
	defer func() { err = errors.Join(err, isolated.Close()) }()
	catalog, err := model.LoadCatalog(filepath.Join(cfg.DataDir, model.CatalogFile))
	if err != nil {
		return err
	}
	harness, reachable := builtIn(cfg, clk, catalog)
	images, err := openImages(cfg.DataDir, cfg.PlainSnapshots)
	if err != nil {
		return err
	}
	bases, err := oci.Open(oci.Options{Dirs: dirs, Clock: clk, Log: cfg.Logger})
	if err != nil {
		return err
	}
	auto, err := service.Auto(cfg.Checkpoints)
	if err != nil {
		return err
	}
	svc := service.New(context.WithoutCancel(ctx), service.Config{
		Log: stepped(db, cfg.Step), Rows: db, Dirs: dirs, Images: images, ImageStore: bases, ImageCache: cfg.ImageCache, Drivers: drivers(cfg, isolated), Harness: harness, Reachable: reachable, Clock: clk, Logger: cfg.Logger, Build: cfg.Build,
		Idle:          service.IdleDefaults{Pause: cfg.IdlePause, Suspend: cfg.IdleSuspend, Archive: cfg.IdleArchive, Expire: cfg.ExpireAfter},
		Hooks:         service.HookTime{Each: cfg.HookTime},
		Auto:          auto,
		DefaultDriver: gvisor.Name, DefaultModel: cfg.Getenv("PERDURE_MODEL"),
	})
	defer svc.Stop()
	if err := svc.Recover(ctx); err != nil {
		return err
	}
	return serve(ctx, cfg, svc, db)
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, cfg Config, svc *service.Service, db *sqlite.Store) error {
	tokens, err := server.LoadTokens(filepath.Join(cfg.DataDir, server.TokensFile))
	if err != nil {
		return err
	}
	srv, err := server.New(context.WithoutCancel(ctx), server.Config{
		Backend:     server.Backend{Sessions: svc, Settings: svc, Ports: svc, Events: svc, Execs: svc, Files: svc, Checkpoints: svc, Storage: svc, Archives: svc, System: svc, Images: svc},
		Idempotency: keys{db}, Log: cfg.Logger, Tokens: tokens, Hosts: cfg.HostNames,
	})
	if err != nil {
		return err
	}
	unix, err := server.ListenUnix(ctx, filepath.Join(cfg.DataDir, api.SocketName))
	if err != nil {
		return err
	}
	listeners := []net.Listener{unix}
	if cfg.Listen != "" {
		tcp, err := srv.ListenTCP(ctx, cfg.Listen)
		if err != nil {
			return errors.Join(err, unix.Close())
		}
		listeners = append(listeners, tcp)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		cfg.Logger.Info("listening", "address", l.Addr().String())
		g.Go(func() error { return srv.Serve(l) })
	}
	g.Go(func() error {
		<-gctx.Done()
		cfg.Logger.Info("stopping; sandboxes and commands go on")
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		return srv.Shutdown(end)
	})
	g.Go(func() error { return expireKeys(gctx, db, cfg.Logger) })
	if cfg.Ready != nil {
		cfg.Ready()
	}
	return g.Wait()
}

// drivers is the table of all drivers.
func drivers(cfg Config, isolated *gvisor.Driver) map[string]sandbox.Driver {
	return map[string]sandbox.Driver{
		gvisor.Name:  isolated,
		process.Name: process.New(process.Options{Log: cfg.Logger}),
	}
}

// builtIn makes the built-in agent, and what says whether a spec's model can be reached.
func builtIn(cfg Config, clk clock.Clock, catalog model.Catalog) (harness agent.Harness, reachable func(context.Context, event.Spec) error) {
	models := model.Registry{
		"openai": func(_ context.Context, name string) (model.Provider, error) {
			o := openai.FromEnv(cfg.Getenv)
			o.Models = catalog
			return openai.New(o, name)
		},
		"anthropic": func(_ context.Context, name string) (model.Provider, error) {
			o := anthropic.FromEnv(cfg.Getenv)
			o.Models = catalog
			return anthropic.New(o, name)
		},
		"scripted": scripted.Constructor(clk),
	}
	return agent.New(agent.Options{Models: models, Prices: catalog.Prices(), Clock: clk, Logger: cfg.Logger}), func(ctx context.Context, spec event.Spec) error {
		_, err := models.Open(ctx, spec.Model)
		return err
	}
}
