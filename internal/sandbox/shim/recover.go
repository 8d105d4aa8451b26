package shim

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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

// reap kills everything that a record names and removes its control groups. Harmless when all is gone.
func reap(dir string) error {
	r, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Shim.Kill()
	for _, p := range r.Running.Processes {
		p.Kill()
	}
	if r.Running.Marker != "" {
		killMarked(r.Running.Marker)
	}
	var errs []error
	for _, dir := range r.Running.Cgroups {
		errs = append(errs, RemoveCgroup(dir))
	}
	return errors.Join(errs...)
}

// RemoveCgroup kills what is in a control group and removes it, with the groups below. A missing one is fine.
func RemoveCgroup(dir string) error {
	const tries, pause = 200, 5 * time.Millisecond // killed processes leave the group a moment later
	for range tries {
		err := removeCgroup(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(pause)
	}
	return errdefs.New(errdefs.Unavailable, "cgroup_busy", "the control group %s does not become empty", dir)
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(string(procs)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // the group is ours: whoever is in it is to go
		}
	}
	return unix.Rmdir(dir)
}
