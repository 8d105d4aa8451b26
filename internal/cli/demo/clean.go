package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// clean removes all that the run made, first by the daemon's own means, and claims that nothing is left. What is left it reports and
// then removes by force.
func (s *story) clean(ctx context.Context) error {
	if s.root == "" {
		return nil
	}
	s.chapter("9. Nothing is left behind")
	var errs []error
	if s.daemon != nil && s.daemon.cmd != nil && s.daemon.cmd.Process != nil {
		errs = append(errs, s.dismiss(ctx))
	}
	var left []string
	err := poll(ctx, "the last processes end", func() bool { left = s.leftovers(); return len(left) == 0 })
	if err != nil {
		errs = append(errs, errdefs.New(errdefs.Internal, "demo_leak", "left behind, and now removed by force: %s", strings.Join(left, "; ")))
		s.force()
	}
	if err := os.RemoveAll(s.root); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = os.Lstat(s.root)
	return s.claim(os.IsNotExist(err), "no session, process, mount, network device or file is left", "%s: %v", s.root, err)
}

// dismiss removes the sessions and stops the daemon, which is started once more if it was killed.
func (s *story) dismiss(ctx context.Context) error {
	var errs []error
	if !s.daemon.running() {
		if err := s.daemon.up(ctx); err != nil {
			return err
		}
	}
	list, err := s.c.Sessions(ctx, api.Page{Limit: 100})
	errs = append(errs, err)
	for _, x := range list.Data {
		if err := s.c.DeleteSession(ctx, x.ID); err != nil {
			errs = append(errs, fmt.Errorf("removing %s: %w", x.Name, err))
		}
	}
	// File layers go in the background, once nothing refers to them.
	var left []string
	if err := poll(ctx, "the data directory empties", func() bool { left = s.stored(); return len(left) == 0 }); err != nil {
		errs = append(errs, errdefs.New(errdefs.Internal, "demo_leak", "left in the data directory after the sessions were removed: %s", strings.Join(left, ", ")))
	}
	s.say("%d sessions removed", len(list.Data))
	s.c.Close()
	return errors.Join(append(errs, s.daemon.stop(ctx))...)
}

// stored lists what the data directory holds of sessions.
func (s *story) stored() []string {
	var out []string
	for _, dir := range []string{"sessions", "checkpoints", "layers", "run", "trash"} {
		entries, _ := os.ReadDir(filepath.Join(s.daemon.dir, dir)) // none if it is not there
		for _, e := range entries {
			out = append(out, dir+"/"+e.Name())
		}
	}
	return out
}

// leftovers says what has to do with this run and is still there, the directory aside.
func (s *story) leftovers() []string {
	var out []string
	for _, p := range processesOf(s.root) {
		out = append(out, fmt.Sprintf("process %d (%s)", p.pid, clip(p.args)))
	}
	for _, m := range mountsBelow(s.root) {
		out = append(out, "mount "+m)
	}
	for d := range devices() {
		// Other programs may add devices meanwhile; ours are TAPs.
		if !s.devices[d] && strings.Contains(d, "tap") {
			out = append(out, "network device "+d)
		}
	}
	return out
}

// force ends what would not end. It touches only what names this run's directory.
func (s *story) force() {
	for _, p := range processesOf(s.root) {
		_ = unix.Kill(p.pid, unix.SIGKILL) // may have ended
	}
	mounts := mountsBelow(s.root)
	for i := len(mounts) - 1; i >= 0; i-- {
		_ = unix.Unmount(mounts[i], unix.MNT_DETACH) // RemoveAll will tell
	}
}
