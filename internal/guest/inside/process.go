package inside

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// marker is the environment variable that tells which command a process belongs to, wherever it has moved since.
const marker = "PERDURE_EXEC"

// unkillable is how long a killed process may take to end before its command counts as ended without it.
const unkillable = 2 * time.Second

// environment returns the variables of a new process; later ones win.
func (g *Guest) environment(p person, extra []string, exec string, tty bool) []string {
	g.mu.Lock()
	base := g.env
	g.mu.Unlock()
	term := "TERM=dumb"
	if tty {
		term = "TERM=xterm-256color"
	}
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + p.home, "LANG=C.UTF-8", "USER=" + p.name, "SHELL=" + p.shell, term,
	}
	env = slices.Concat(env, base, extra)
	if exec != "" {
		env = append(env, marker+"="+exec)
	}
	at := map[string]int{}
	out := env[:0:0]
	for _, kv := range env {
		k, _, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			continue
		}
		if i, seen := at[k]; seen {
			out[i] = kv
			continue
		}
		at[k] = len(out)
		out = append(out, kv)
	}
	return out
}

func getenv(env []string, key string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// lookPath finds a program the way execvp does, with the new process's PATH and directory.
func lookPath(name, dir string, env []string) (string, error) {
	usable := func(path string) error {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			return syscall.EISDIR
		case info.Mode()&0o111 == 0:
			return fs.ErrPermission
		}
		return nil
	}
	if strings.Contains(name, "/") {
		switch err := usable(name); {
		case err == nil:
			return name, nil
		case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
			return "", notExecutable(name, err)
		default:
			return "", fail("not_found", "command_not_found", "%s cannot be run: %v", name, err)
		}
	}
	forbidden := ""
	for d := range strings.SplitSeq(getenv(env, "PATH"), ":") {
		path := filepath.Join(d, name)
		switch err := usable(path); {
		case err == nil:
			if d == "" || !strings.Contains(path, "/") {
				path = "./" + path
			}
			return path, nil
		case errors.Is(err, fs.ErrPermission) && forbidden == "":
			forbidden = path
		}
	}
	if forbidden != "" {
		return "", notExecutable(forbidden, fs.ErrPermission)
	}
	return "", fail("not_found", "command_not_found", "there is no command %q", name)
}

// notExecutable is the error for a file that is there and cannot be run, which shells tell from one that is not there.
func notExecutable(path string, err error) error {
	return fail("denied", "command_not_executable", "%s cannot be run: %v", path, err)
}

// startProcess starts a command of kind process.
func (g *Guest) startProcess(c *command) error {
	spec := c.spec
	who, err := g.person(spec.User)
	if err != nil {
		return err
	}
	dir := spec.Dir
	if dir == "" {
		dir = g.start(who)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fail("invalid", "exec_invalid", "the working directory %s is not there", dir)
	}
	env := g.environment(who, spec.Env, spec.ID, spec.TTY != nil)
	path, err := lookPath(spec.Argv[0], dir, env)
	if err != nil {
		return err
	}
	stdio, err := newStdio(spec)
	if err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Files: stdio.child, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: spec.TTY != nil}}
	who.become(attr.Sys)
	stdio.belong(who)
	pid, ends, err := g.fork(path, spec.Argv, attr)
	stdio.closeChild()
	if err != nil {
		stdio.closeParent()
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
			e := fail("exhausted", "processes_exhausted", "no process could be started for %s: %v", path, err)
			e.Hint = "end what runs in the workspace: perdure ps lists it; the limit counts threads too"
			return e
		}
		if errors.Is(err, fs.ErrNotExist) { // of a script: its interpreter
			return fail("not_found", "command_not_found", "%s cannot be run: its interpreter is not there", path)
		}
		if errors.Is(err, fs.ErrPermission) && !who.same && unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, 0) == nil {
			return fail("denied", "command_not_executable", "%s cannot be run in %s by %s: %v", path, dir, who.name, err)
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC) {
			return notExecutable(path, err)
		}
		return fail("invalid", "exec_invalid", "starting %s: %v", path, err)
	}
	g.mu.Lock()
	c.pid, c.startedAt = pid, time.Now().UTC()
	if stdio.stdin != nil {
		c.stdin = newStdin(spec.TTY != nil, c.done)
		c.stdin.attach(stdio.stdin, nil, c.done)
	}
	g.mu.Unlock()
	return g.superviseProcess(c, pid, ends, stdio)
}

// fork starts a program as a child of the guest and applies the limits to it.
func (g *Guest) fork(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan unix.WaitStatus, error) {
	g.mu.Lock()
	g.cage.confineChild(attr.Sys)
	g.mu.Unlock()
	pid, ends, err := g.reaper.start(func() (int, error) { return syscall.ForkExec(path, argv, attr) })
	if err == nil {
		g.limit(pid)
	}
	return pid, ends, err
}

func (g *Guest) superviseProcess(c *command, pid int, ends <-chan unix.WaitStatus, stdio *stdio) error {
	var pumps []*pump
	for i, f := range stdio.out {
		if f == nil {
			g.out.finish(c.streams[i])
			continue
		}
		p, err := g.startPump(f, c.streams[i])
		if err != nil {
			killTree(c, unix.SIGKILL)
			return err
		}
		pumps = append(pumps, p)
	}
	c.kill = func(sig unix.Signal) {
		if sig == unix.SIGKILL {
			killTree(c, sig)
			return
		}
		unix.Kill(-pid, sig) // a group that is gone needs no signal
	}
	c.resize = stdio.resize
	go c.overseeProcess(ends, pumps)
	return nil
}

// overseeProcess waits for the process and its timeout and records the end.
func (c *command) overseeProcess(ends <-chan unix.WaitStatus, pumps []*pump) {
	timeout, stop := c.timeout()
	defer stop()
	var giveUp <-chan time.Time
	timedOut := false
	for {
		select {
		case ws := <-ends:
			for _, p := range pumps {
				p.drain()
			}
			e := exitOf(ws)
			e.TimedOut = timedOut
			c.ended(e)
			return
		case <-timeout:
			timedOut, timeout = true, nil
			go killTree(c, unix.SIGKILL)
			giveUp = time.After(unkillable)
		case <-giveUp:
			c.ended(wire.Exit{TimedOut: true, Signal: "SIGKILL", Cause: "the process was killed and has not ended yet"})
			return
		}
	}
}

// timeout returns a channel that fires at the command's timeout, if it has one.
func (c *command) timeout() (<-chan time.Time, func() bool) {
	if c.spec.Timeout <= 0 {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(c.spec.Timeout)
	return t.C, t.Stop
}

func exitOf(ws unix.WaitStatus) wire.Exit {
	if ws.Signaled() {
		return wire.Exit{Signal: signalName(ws.Signal())}
	}
	code := ws.ExitStatus()
	return wire.Exit{ExitCode: &code}
}

func signalName(s unix.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + s.String()
}

// limit sets the limits of a new process. They are not set on the guest, which must go on answering.
func (g *Guest) limit(pid int) {
	g.mu.Lock()
	limits := g.limits
	g.mu.Unlock()
	for resource, most := range map[int]int{unix.RLIMIT_NPROC: limits.Processes, unix.RLIMIT_NOFILE: limits.OpenFiles} {
		if most == 0 {
			continue
		}
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: uint64(most), Max: uint64(most)}, nil); err != nil && err != unix.ESRCH {
			g.log.Warn("setting a limit", "err", err)
		}
	}
}
