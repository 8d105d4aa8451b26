package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// cage is a control group of the sandbox's own kernel in which all commands live, and the guest does not. It bounds how many processes and
// threads they may have: at the limit fork(2) fails in them with EAGAIN, while the guest goes on answering. RLIMIT_NPROC would not do,
// since it does not bind root. A nil cage bounds nothing.
type cage struct {
	dir  string
	mu   sync.Mutex // held by the one thread that is in the cage to fork
	in   *os.File   // the cage's list of threads
	out  *os.File   // the root's
}

// confine sets the limit for all commands, those that run included; 0 takes it away. It fails where the kernel offers no such group.
func (g *Guest) confine(limit int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cage == nil {
		if limit <= 0 {
			return nil
		}
		if pid() != 1 {
			return fail("unsupported", "limit_unsupported", "the guest is not process 1 of a sandbox, and bounds nothing")
		}
		c, err := newCage(filepath.Join(g.cfg.RunDir, "pids"))
		if err != nil {
			return fail("unsupported", "limit_unsupported", "the sandbox's kernel bounds no processes: %v", err)
		}
		for pid := range readProcs() { // those of before the cage, as after a restore
			c.take(pid)
		}
		g.cage = c
	}
	return g.cage.limit(limit)
}

func newCage(root string) (*cage, error) {
	c := &cage{dir: filepath.Join(root, "commands")}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("none", root, "cgroup", 0, "pids"); err != nil {
		return nil, fmt.Errorf("mount the pids controller: %w", err)
	}
	err := os.Mkdir(c.dir, 0o755)
	if err == nil || errors.Is(err, fs.ErrExist) {
		if c.in, err = os.OpenFile(filepath.Join(c.dir, "tasks"), os.O_WRONLY, 0); err == nil {
			c.out, err = os.OpenFile(filepath.Join(root, "tasks"), os.O_WRONLY, 0)
		}
	}
	if err != nil {
		if c.in != nil {
			c.in.Close()
		}
		return nil, errors.Join(err, unix.Unmount(root, unix.MNT_DETACH))
	}
	return c, nil
}

func (c *cage) limit(processes int) error {
	value := "max"
	if processes > 0 {
		value = strconv.Itoa(processes)
	}
	return os.WriteFile(filepath.Join(c.dir, "pids.max"), []byte(value), 0o644)
}

// take moves a running process into the cage.
func (c *cage) take(pid int) {
	f, err := os.OpenFile(filepath.Join(c.dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(strconv.Itoa(pid)) // it may have ended meanwhile
}

// start runs fork, whose child is born in the cage, because the thread that forks is in it: a child that were moved afterwards could have
// children before. While it is in, the thread counts, so a command can be started up to one below the limit.
func (c *cage) start(fork func() (int, error)) (int, error) {
	if c == nil {
		return fork()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := move(c.in); err != nil {
		return 0, err
	}
	pid, err := fork()
	if lerr := move(c.out); lerr != nil { // the thread would count for ever, and nothing worse
		err = errors.Join(err, lerr)
	}
	return pid, err
}

// move moves the calling thread into the group whose list of threads is given.
func move(tasks *os.File) error {
	for {
		_, err := unix.Pwrite(int(tasks.Fd()), []byte("0"), 0)
		if err != unix.EINTR {
			return err
		}
	}
}
