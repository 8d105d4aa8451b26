package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// hookDrain is how long the output of a hook that has ended is waited for: what it left in the background may hold the pipe open for ever.
const hookDrain = 100 * time.Millisecond

// maxHookEntries is how many names of a directory are looked at.
const maxHookEntries = 10_000

// runHooks runs the hooks of an occasion. Whatever they do, it returns about when the time for all is over.
func (g *Guest) runHooks(a wire.HooksArgs) (any, error) {
	if !hookName(a.Occasion) || a.Each <= 0 || a.All <= 0 {
		return nil, fail("invalid", "guest_request", "hooks for %q within %s each and %s in all", a.Occasion, a.Each, a.All)
	}
	res := wire.HooksResult{}
	if g.cfg.Hooks == "" {
		return res, nil
	}
	dir := filepath.Join(g.cfg.Hooks, a.Occasion+".d")
	names, err := hookNames(dir)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(a.All)
	for i, name := range names {
		left := time.Until(end)
		switch {
		case i == wire.MaxHooks:
			res.Runs = append(res.Runs, wire.HookRun{Name: name, Cause: fmt.Sprintf("not run, with those after it: only %d are", wire.MaxHooks)})
			return res, nil
		case left <= 0:
			res.Runs = append(res.Runs, wire.HookRun{Name: name, Cause: fmt.Sprintf("not run: those before it have taken the %s for all", a.All)})
			continue
		}
		began := time.Now()
		run := g.runHook(filepath.Join(dir, name), a, min(a.Each, left))
		run.Name, run.Took = name, time.Since(began)
		res.Runs = append(res.Runs, run)
	}
	return res, nil
}

// hookNames lists what run-parts(8) would run, in its order.
func hookNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.Readdirnames(maxHookEntries)
	if err != nil && err != io.EOF {
		if errors.Is(err, syscall.ENOTDIR) {
			return nil, nil
		}
		return nil, err
	}
	var names []string
	for _, name := range all {
		info, err := os.Stat(filepath.Join(dir, name))
		if hookName(name) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// hookName reports whether a name is one that run-parts(8) takes.
func hookName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	return name != "" && len(name) <= 255 && strings.Trim(name, letters) == ""
}

// runHook runs one hook in a session of its own, which is killed at the limit.
func (g *Guest) runHook(path string, a wire.HooksArgs, limit time.Duration) wire.HookRun {
	mark := "hook-" + a.Occasion + "-" + filepath.Base(path)
	root := person{name: "root", home: g.cfg.Home, shell: "/bin/bash", same: true} // whomever the image names for commands
	env := g.environment(root, slices.Concat(a.Env, []string{"PERDURE_HOOK=" + a.Occasion}), mark, false)
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return wire.HookRun{Cause: err.Error()}
	}
	defer null.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return wire.HookRun{Cause: err.Error()}
	}
	kept := newHead(out)
	defer kept.close()
	attr := &syscall.ProcAttr{Dir: "/", Env: env, Files: []uintptr{null.Fd(), in.Fd(), in.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}
	pid, ends, err := g.fork(path, []string{path}, attr)
	in.Close()
	if err != nil {
		return wire.HookRun{Cause: "not started: " + err.Error()}
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case ws := <-ends:
		run := wire.HookRun{Output: kept.text(hookDrain)}
		if ws.Signaled() {
			run.Cause = "ended by " + signalName(ws.Signal())
			return run
		}
		code := ws.ExitStatus()
		run.ExitCode = &code
		return run
	case <-timeout.C:
	}
	killHook(pid, mark)
	cause := fmt.Sprintf("killed: it had not ended after %s", limit.Round(time.Millisecond))
	select {
	case <-ends:
	case <-time.After(unkillable):
		cause += ", and has not ended yet"
	}
	return wire.HookRun{Cause: cause, Output: kept.text(0)}
}

// killHook kills a hook's group and session, its descendants, and what carries its mark.
func killHook(pid int, mark string) {
	unix.Kill(-pid, unix.SIGKILL)
	for range killRounds {
		all := readProcs()
		var targets []int
		for _, p := range all {
			if p.state == "Z" || p.state == "X" {
				continue
			}
			if p.pid == pid || p.pgid == pid || p.sid == pid || descends(all, p, pid) || markOf(p.pid) == mark {
				targets = append(targets, p.pid)
			}
		}
		if len(targets) == 0 {
			return
		}
		for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} { // nobody forks any more while the others die
			for _, target := range targets {
				unix.Kill(target, sig)
			}
		}
	}
}

// head keeps the beginning of what comes out of a pipe, and reads on so that the writer does not wait.
type head struct {
	file *os.File
	done chan struct{}

	mu   sync.Mutex // guards all below
	data []byte
	cut  bool
}

func newHead(file *os.File) *head {
	h := &head{file: file, done: make(chan struct{})}
	go h.read()
	return h
}

func (h *head) read() {
	defer close(h.done)
	buf := make([]byte, 4<<10)
	for {
		n, err := h.file.Read(buf)
		h.mu.Lock()
		room := min(n, wire.MaxHookOutput-len(h.data))
		h.data = append(h.data, buf[:room]...)
		h.cut = h.cut || room < n
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text returns what there is, after waiting for the end for so long.
func (h *head) text(wait time.Duration) string {
	select {
	case <-h.done:
	case <-time.After(wait):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.ToValidUTF8(string(h.data), "\uFFFD")
	if h.cut {
		text += "…"
	}
	return text
}

// close ends the reading. Whoever writes on gets SIGPIPE.
func (h *head) close() {
	h.file.Close()
	<-h.done
}
