package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// cage is a control group of the sandbox's own kernel in which all commands are born, and the guest is not. It bounds how many processes
// and threads they may have: at the limit fork(2) fails in them with EAGAIN, while the guest goes on answering. RLIMIT_NPROC would not do,
// since it does not bind root. A nil cage bounds nothing. See cgroup-v2.rst of the kernel's documentation.
type cage struct{ dir *os.File }

// confine sets the limits for all commands, those that run included. It fails where the kernel offers no such group.
func (g *Guest) confine(a wire.ConfineArgs) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.confineShared(a.Memory)
	return g.confineProcesses(a.Processes)
}

// confineShared has /dev/shm take half of the memory, as on any machine: the engine would grant it half of the host's. No process can be
// killed for what lies there. What has been used already is left alone.
func (g *Guest) confineShared(memory int64) {
	if memory <= 0 || pid() != 1 || g.shared || len(g.execs) > 0 {
		return
	}
	if err := unix.Mount("none", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d", memory/2)); err != nil {
		g.log.Warn("bounding /dev/shm", "err", err)
		return
	}
	g.shared = true
}

func (g *Guest) confineProcesses(limit int) error {
	if g.cage == nil {
		if limit <= 0 {
			return nil
		}
		if pid() != 1 {
			return fail("unavailable", "limit_unsupported", "the guest is not process 1 of a sandbox, and bounds nothing")
		}
		c, err := newCage(filepath.Join(g.cfg.RunDir, "cgroup"))
		if err != nil {
			return fail("unavailable", "limit_unsupported", "the sandbox's kernel bounds no processes: %v", err)
		}
		g.cage = c
		for pid := range readProcs() { // those of before the cage, as after a restore
			_ = c.set("cgroup.procs", pid) // it may have ended meanwhile
		}
	}
	if limit <= 0 {
		return g.cage.set("pids.max", "max")
	}
	return g.cage.set("pids.max", limit)
}

func newCage(root string) (*cage, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		return nil, fmt.Errorf("mount the control groups: %w", err)
	}
	c, err := openCage(root)
	if err != nil {
		return nil, errors.Join(err, unix.Unmount(root, unix.MNT_DETACH))
	}
	return c, nil
}

func openCage(root string) (*cage, error) {
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+pids"), 0o644); err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "commands")
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.Open(dir)
	return &cage{f}, err
}

func (c *cage) set(file string, value any) error {
	return os.WriteFile(filepath.Join(c.dir.Name(), file), fmt.Append(nil, value), 0o644)
}

// confineChild has a process that is to be forked be born in the cage: one that were moved afterwards could have children before.
func (c *cage) confineChild(attr *syscall.SysProcAttr) {
	if c != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(c.dir.Fd())
	}
}
