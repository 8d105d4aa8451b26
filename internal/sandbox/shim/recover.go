package shim

import (
	"context"
	"errors"
	"io/fs"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// Recover returns the sandbox of a state directory: the client of its living shim, or one that reports it dead. What a dead shim
// left running is ended first. Error: sandbox_not_found.
func Recover(_ context.Context, dir string) (*Client, error) {
	cfg, err := readConfig(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errdefs.New(errdefs.NotFound, "sandbox_not_found", "no sandbox in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	alive, err := shimAlive(dir)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "shim_unreachable", "look for the shim of %s", cfg.Spec.ID)
	}
	c := newClient(dir, cfg)
	if !alive {
		if err := c.bury(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// shimDied is the cause of death when the shim's end was the sandbox's.
const shimDied = "its shim process died"

// bury ends what a dead shim left and notes the death, once.
func (c *Client) bury() error {
	if err := reap(c.dir); err != nil {
		return err
	}
	r, err := readRecord(c.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r = Record{ID: c.cfg.Spec.ID, Driver: c.cfg.Driver, Version: c.cfg.Version, SpoolDir: c.cfg.Spec.SpoolDir}
	case err != nil:
		return err
	}
	if r.State != sandbox.Dead {
		r.State, r.Cause = sandbox.Dead, shimDied
		if err := writeRecord(c.dir, r); err != nil {
			return errdefs.Wrap(err, errdefs.Unavailable, "state_unwritable", "note the death of %s", r.ID)
		}
	}
	return markLost(c.cfg.Spec.SpoolDir, r.Cause)
}

// reap kills everything that a record names and removes its control groups, also those of a shim that died before it could note them.
// Harmless when all is gone.
func reap(dir string) error {
	r, err := readRecord(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	groups := r.Running.Cgroups
	if cfg, cerr := readConfig(dir); cerr == nil {
		groups = append(groups, Cgroups(cfg.Spec.ID)...)
	}
	if err == nil {
		r.Shim.Kill()
		for _, p := range r.Running.Processes {
			p.Kill()
		}
		if r.Running.Marker != "" {
			killMarked(r.Running.Marker)
		}
	}
	var errs []error
	for _, dir := range groups {
		errs = append(errs, RemoveCgroup(dir))
	}
	return errors.Join(errs...)
}
