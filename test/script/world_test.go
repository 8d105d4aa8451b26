package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
)

// world is a data directory, with the daemon that runs on it.
type world struct{ dir string }

type worldKey struct{}

func newWorld() (*world, error) {
	dir, err := os.MkdirTemp("", "ps") // short: the paths of Unix sockets are below it
	return &world{dir}, err
}

func setup(env *testscript.Env, driver string) error {
	w, err := newWorld()
	if err != nil {
		return err
	}
	env.Values[worldKey{}] = w
	env.Vars = append(env.Vars, "D="+w.dir, "PERDURE_DATA="+w.dir, "DRIVER="+driver, "BIN="+binDir, "HOME="+env.WorkDir, "TERM=dumb",
		"PATH="+binDir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	env.Defer(func() {
		if err := w.close(); err != nil {
			env.T().Fatal(err)
		}
	})
	return nil
}

// perdure runs the command line on the world.
func (w *world) perdure(args ...string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(binDir, "perdure"), args...)
	cmd.Env = append(os.Environ(), "PERDURE_DATA="+w.dir)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("perdure %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

// close ends all that the world holds and says what is left of it.
func (w *world) close() error {
	err := errors.Join(w.removeAll(), w.stop(unix.SIGTERM), w.traces())
	unmount(w.dir)
	return errors.Join(err, os.RemoveAll(w.dir))
}

func (w *world) removeAll() error {
	if _, err := os.Stat(filepath.Join(w.dir, "perdure.db")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	out, err := w.perdure("ls", "--json")
	if err != nil {
		return err
	}
	var list api.List[api.Session]
	if err := json.Unmarshal(out, &list); err != nil {
		return err
	}
	for _, s := range list.Data {
		if _, err := w.perdure("rm", s.ID); err != nil {
			return err
		}
	}
	return nil
}

// daemon returns the process id of the daemon that holds the data directory, or 0.
func (w *world) daemon() int {
	f, err := os.Open(filepath.Join(w.dir, "perdure.lock"))
	if err != nil {
		return 0
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return 0
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b))) // 0 while it is being written
	return pid
}

// stop ends the daemon with a signal and returns when its lock is free, or another daemon's, which a command has started in its place.
func (w *world) stop(sig unix.Signal) error {
	pid := w.daemon()
	if pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, sig); err != nil {
		return err
	}
	return eventually(20*time.Second, func() error {
		if w.daemon() == pid {
			return fmt.Errorf("the daemon %d is still there", pid)
		}
		return nil
	})
}

// traces says what is left once all sessions are removed and the daemon is gone.
func (w *world) traces() error {
	return eventually(10*time.Second, func() error { // the kernel takes a moment to bury the dead
		var left []string
		procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, p := range procs {
			if args, err := os.ReadFile(p); err == nil && strings.Contains(string(args), w.dir+"/") {
				left = append(left, p+": "+strings.ReplaceAll(string(args), "\x00", " "))
			}
		}
		mounts, _ := os.ReadFile("/proc/self/mounts")
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, w.dir+"/") {
				left = append(left, "mount "+line)
			}
		}
		for _, name := range []string{"run", "layers", "checkpoints", "sessions"} {
			entries, _ := os.ReadDir(filepath.Join(w.dir, name))
			for _, e := range entries {
				left = append(left, filepath.Join(name, e.Name()))
			}
		}
		if left == nil {
			return nil
		}
		return fmt.Errorf("left behind:\n\t%s", strings.Join(left, "\n\t"))
	})
}

func unmount(dir string) {
	for unix.Unmount(dir, unix.MNT_DETACH) == nil { // what a script mounted there
	}
}

// eventually tries until it works or the time is over.
func eventually(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
