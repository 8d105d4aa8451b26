package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// interp is a named persistent interpreter: it runs one command at a time, in the order in which they came.
type interp struct {
	g          *Guest
	kind, name string
	dir        string // of its scripts and FIFOs

	mu      sync.Mutex // guards all below
	queue   []*command
	running *command
	busy    bool // the worker is at work
	proc    *interpProc
	owner   *person  // whom it runs as; nil: the guest
	count   int      // numbers commands
	spare   *fifos   // for the next command; nil: there are none yet
	code    *os.File // the text of the command
	length  int      // of what is in it, in bytes
	seed    string   // what the next command's header tells bash to seed $RANDOM with; "": nothing
	cwd     string   // as of the last command that ended
	notice  string   // why the interpreter had to be started anew, for the next command to tell
}

func (g *Guest) interp(kind, name string) (*interp, error) {
	if name == "" {
		name = "main"
	}
	if strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
		return nil, fail("invalid", "exec_invalid", "%q is no name for an interpreter", name)
	}
	key := kind + "-" + name
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := g.interps[key]; i != nil {
		return i, nil
	}
	i := &interp{g: g, kind: kind, name: name, dir: filepath.Join(g.cfg.RunDir, key)}
	g.interps[key] = i
	return i, nil
}

// startInterpreted queues a command for its interpreter, which is started here if need be, so that the caller learns why it
// cannot be.
func (g *Guest) startInterpreted(c *command) error {
	i, err := g.interp(c.spec.Kind, c.spec.Interpreter)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.proc == nil {
		if err := i.startLocked(); err != nil {
			return err
		}
	}
	r := &run{c: c, i: i, interrupt: make(chan killing, 8), opened: make(chan struct{})}
	c.kill = r.kill
	g.mu.Lock()
	c.pid = i.proc.pid
	if c.spec.Stdin {
		c.stdin = newStdin(false, c.done)
	}
	g.mu.Unlock()
	before := i.running
	if len(i.queue) > 0 {
		before = i.queue[len(i.queue)-1]
	}
	if before != nil {
		c.cause = fmt.Sprintf("the interpreter is busy with %s; this waits for it", before.spec.ID)
	}
	if i.notice != "" {
		c.cause = i.notice
	}
	i.queue = append(i.queue, c)
	c.run = r
	if !i.busy {
		i.busy = true
		go i.work()
	}
	return nil
}

// current returns the interpreter's pid, zero if it does not run, and what it runs.
func (i *interp) current() (int, *command) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.proc == nil {
		return 0, nil
	}
	return i.proc.pid, i.running
}

// work runs the queue until it is empty.
func (i *interp) work() {
	for {
		i.mu.Lock()
		if len(i.queue) == 0 {
			i.busy = false
			i.mu.Unlock()
			return
		}
		c := i.queue[0]
		i.queue = i.queue[1:]
		i.running = c
		i.mu.Unlock()
		c.run.execute()
		i.mu.Lock()
		i.running = nil
		i.mu.Unlock()
	}
}

// rest says that no command runs, though the worker still cleans up after the last one.
func (i *interp) rest() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running = nil
}

// unqueue takes a waiting command out and reports whether it was waiting.
func (i *interp) unqueue(c *command) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.Index(i.queue, c)
	if at < 0 {
		return false
	}
	i.queue = slices.Delete(i.queue, at, at+1)
	return true
}

// turn is what a command gets when its turn has come.
type turn struct {
	proc   *interpProc
	fifos  *fifos
	notice string // that is due
	seed   string // for the header
}

// prepare makes sure that the interpreter runs and knows the next command's text.
func (i *interp) prepare(code string) (t turn, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.proc == nil {
		if err := i.startLocked(); err != nil {
			return t, err
		}
	}
	if err := i.writeLocked(code); err != nil {
		return t, err
	}
	if err := i.stockLocked(); err != nil {
		return t, err
	}
	t = turn{i.proc, i.spare, i.notice, "-"}
	if i.seed != "" {
		t.seed = i.seed
	}
	i.spare, i.notice, i.seed = nil, "", ""
	return t, nil
}

// writeLocked puts a command's text into the file that the interpreter reads, whole, before it runs any of it.
func (i *interp) writeLocked(code string) error {
	if i.code == nil {
		fd, err := unix.Open(filepath.Join(i.dir, "code"), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		i.code = os.NewFile(uintptr(fd), "code")
		if err := i.owner.own(filepath.Join(i.dir, "code")); err != nil {
			return err
		}
	}
	if len(code) < i.length {
		if err := i.code.Truncate(int64(len(code))); err != nil {
			return err
		}
	}
	i.length = len(code)
	_, err := i.code.WriteAt([]byte(code), 0)
	return err
}

// stock makes the streams of the next command ahead of it.
func (i *interp) stock() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stockLocked()
}

func (i *interp) stockLocked() error {
	if i.spare != nil {
		return nil
	}
	i.count++
	f, err := makeFIFOs(i.dir, i.owner, i.count)
	if err == nil {
		i.spare = f
	}
	return err
}

// died forgets a process that has ended. The next command starts a new one and says why.
func (i *interp) died(p *interpProc, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.proc == p {
		i.proc = nil
		kept := "working directory and exported variables were kept, all else is gone"
		if i.kind == "python" {
			kept = "the working directory was kept, all variables are gone"
		}
		i.notice = fmt.Sprintf("the %s interpreter %q was started anew, since %s; %s", i.kind, i.name, why, kept)
	}
}

func (i *interp) remember(cwd string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if cwd != "" {
		i.cwd = cwd
	}
}

// makeDir makes the directory of scripts and FIFOs. It stays the guest's: whom the interpreter runs as owns single files in it, and cannot lead
// the guest to others by links.
func (i *interp) makeDir() error {
	if err := os.MkdirAll(i.dir, 0o711); err != nil {
		return err
	}
	if i.owner == nil {
		return nil
	}
	for _, name := range []string{"exports.0", "exports.1"} {
		f, err := os.OpenFile(filepath.Join(i.dir, name), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err == nil {
			err = errors.Join(f.Chown(int(i.owner.uid), int(i.owner.gid)), f.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startLocked starts the interpreter's process.
func (i *interp) startLocked() error {
	who, err := i.g.person("")
	if err != nil {
		return err
	}
	i.owner = i.g.owner()
	if err := i.makeDir(); err != nil {
		return err
	}
	if i.cwd == "" {
		i.cwd = i.g.start(who)
	}
	env := i.g.environment(who, nil, "", false)
	argv, err := i.command(env)
	if err != nil {
		return err
	}
	p, err := i.g.startInterpProc(i, argv, env, i.cwd, who)
	if err != nil {
		return fail("unavailable", "interpreter_failed", "starting %s: %v", argv[0], err)
	}
	i.proc = p
	return nil
}

func (i *interp) interpreters() wire.Interpreter {
	i.mu.Lock()
	defer i.mu.Unlock()
	info := wire.Interpreter{Kind: i.kind, Name: i.name}
	if i.proc != nil {
		info.PID = i.proc.pid
		info.Alive = unix.Kill(i.proc.pid, 0) == nil
	}
	return info
}
