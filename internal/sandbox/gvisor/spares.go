package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// spares keeps one sandbox that has been made ahead of need: making it takes longer than all else of a start or a restore. It is made in
// the background, some time after a start, and ends with the driver, or with this process, however that ends.
type spares struct {
	mu     sync.Mutex    // guards all below
	ready  *spare        // nil: none
	busy   bool          // one will be made, or is
	making chan struct{} // closed when the one being made is ready or has failed; nil: none is being made
	stop   context.CancelFunc
	closed bool
	done   sync.WaitGroup // the goroutine that makes one
}

// spare is a sandbox without a user.
type spare struct {
	*shim.SpareProcess
	engine  os.FileInfo // the binary that it runs
	network sandbox.NetworkMode
}

// spareDelay is how long after a start a spare is made for the next one. Whoever waited for that start has first use of the processor.
const spareDelay = 300 * time.Millisecond

const sparePrefix = "spare-"

// sweepSpares removes what a machine that went down has left of spares. A daemon that dies leaves nothing: its spare cleans up.
func sweepSpares(cache string) error {
	dirs, err := filepath.Glob(filepath.Join(cache, sparePrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if alive, aerr := shim.Alive(dir); aerr == nil && !alive {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// launch starts a shim for cfg: the spare, if it fits, or a new one.
func (d *Driver) launch(ctx context.Context, cfg shim.Config) (*shim.Client, error) {
	engine, err := shim.Binary(d.opts.Engine, "perdure-engine")
	if err != nil {
		return nil, err
	}
	opt := shim.LaunchOptions{Engine: engine, Mounts: true, UserMappings: os.Geteuid() != 0}
	// Limits are set on a control group that the processes are born into, and in a user namespace mounts are not passed on.
	if !d.opts.Spare || opt.UserMappings || cfg.Spec.Limits.Whole() != (sandbox.Limits{}) {
		return shim.Launch(ctx, cfg, opt)
	}
	binary, err := os.Stat(engine)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "engine_missing", "look at %s", engine)
	}
	defer d.spareLater(ctx, cfg, binary, opt)
	if sp := d.takeSpare(ctx, cfg, binary); sp != nil {
		c, err := sp.Launch(ctx, cfg)
		if errdefs.CodeOf(err) != shim.SpareUnfit {
			return c, err
		}
		d.opts.Log.Warn("a spare sandbox could not be used", "sandbox", cfg.Spec.ID, "error", err)
	}
	return shim.Launch(ctx, cfg, opt)
}

// takeSpare returns a spare for cfg, or nil. One that is just being made has a head start: it is waited for.
func (d *Driver) takeSpare(ctx context.Context, cfg shim.Config, engine os.FileInfo) *spare {
	s := &d.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	if making := s.making; making != nil {
		s.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	sp := s.ready
	if sp == nil {
		return nil
	}
	s.ready = nil
	if sameBinary(sp.engine, engine) && sp.network == cfg.Spec.Network {
		return sp
	}
	s.done.Go(func() { d.end(sp) })
	return nil
}

// end ends a spare that nobody will use.
func (d *Driver) end(sp *spare) {
	if err := sp.Close(); err != nil {
		d.opts.Log.Warn("cannot remove what is left of a spare sandbox", "error", err)
	}
}

// spareLater has a spare made for a sandbox like that of cfg, unless there is one.
func (d *Driver) spareLater(ctx context.Context, cfg shim.Config, engine os.FileInfo, opt shim.LaunchOptions) {
	s := &d.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.busy || s.ready != nil {
		return
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.busy = true
	s.done.Go(func() {
		if d.opts.Clock.Sleep(ctx, spareDelay) == nil {
			d.makeSpare(ctx, cfg, engine, opt)
		}
		s.mu.Lock()
		s.busy = false
		s.mu.Unlock()
	})
}

func (d *Driver) makeSpare(ctx context.Context, like shim.Config, engine os.FileInfo, opt shim.LaunchOptions) {
	s := &d.spares
	making := make(chan struct{})
	defer close(making)
	s.mu.Lock()
	s.making = making
	s.mu.Unlock()
	sid := id.NewSandbox()
	p, err := shim.PrepareSpare(ctx, shim.Config{
		Driver: like.Driver, Version: like.Version, Guest: like.Guest,
		Spec: sandbox.Spec{
			ID: sid, Hostname: "perdure", Network: like.Spec.Network,
			StateDir: filepath.Join(d.opts.Cache, sparePrefix+string(sid)),
		},
	}, opt)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making = nil
	switch {
	case err != nil && ctx.Err() == nil:
		d.opts.Log.Warn("cannot make a spare sandbox: the next start takes longer", "error", err)
	case err == nil:
		s.ready = &spare{p, engine, like.Spec.Network} // Close takes it, if it waits for us
	}
}

// Close ends what the driver keeps for later. Sandboxes are not touched.
func (d *Driver) Close() error {
	s := &d.spares
	s.mu.Lock()
	s.closed = true
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.ready
	if sp == nil {
		return nil
	}
	s.ready = nil
	return sp.Close()
}
