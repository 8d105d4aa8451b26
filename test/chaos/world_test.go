package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
)

const (
	patience = 90 * time.Second      // for what must happen
	poll     = 10 * time.Millisecond // between two looks at a condition
	deathIn  = 20 * time.Second      // for a point that may lie behind the answer
)

func full() bool { return os.Getenv("PERDURE_CHAOS") == "full" }

// bin is where the binaries are. TestMain builds them.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "chaos: gVisor sandboxes need root; run as root")
		return 1
	}
	dir, err := os.MkdirTemp("", "pdbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-tags", "chaos", "-o", dir+"/", "./cmd/...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv("PERDURE_CHAOS_BIN", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// world is a data directory with a daemon on it.
type world struct {
	t     *testing.T
	dir   string
	c     *client.Client // waits for a daemon that is not there
	once  *client.Client // fails at once
	cmd   *exec.Cmd
	dead  chan struct{} // closed when the daemon is gone
	log   *os.File
	n     int             // the last value that set has used
	runs  int             // numbers orders and commands
	mark  uint64          // the last event of the operation's session before it
	owned map[string]bool // ids of sandboxes that were ours

	mu   sync.Mutex                   // guards seen
	seen map[string]map[uint64]string // session → seq → hash of the events that we were told of
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "pc") // short: socket paths are below it
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, seen: map[string]map[uint64]string{}, owned: map[string]bool{}}
	if err := os.Mkdir(w.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if w.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	if w.c, err = client.New(client.Options{Socket: w.socket(), RetryFor: patience}); err != nil {
		t.Fatal(err)
	}
	if w.once, err = client.New(client.Options{Socket: w.socket(), RetryFor: -1}); err != nil {
		t.Fatal(err)
	}
	w.up()
	t.Cleanup(func() {
		w.t = t
		w.end()
		if t.Failed() {
			w.tail()
		}
		w.log.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) data() string   { return filepath.Join(w.dir, "data") }
func (w *world) socket() string { return filepath.Join(w.data(), "perdure.sock") }
func (w *world) orders() string { return filepath.Join(w.dir, "orders") }

// ctx is for one request. It outlives the test's own, so that cleaning up can use it.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// up starts a daemon and returns when it answers.
func (w *world) up() {
	w.t.Helper()
	w.cmd = exec.Command(filepath.Join(os.Getenv("PERDURE_CHAOS_BIN"), "perdure"), "serve", "--data", w.data())
	w.cmd.Dir = "/"
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	w.cmd.Env = append(os.Environ(), "PERDURE_CHAOS="+w.orders())
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.dead = make(chan struct{})
	go func(cmd *exec.Cmd, dead chan struct{}) { // ends with the daemon
		_ = cmd.Wait() // it is meant to be killed
		close(dead)
	}(w.cmd, w.dead)
	until(w.t, "the daemon answers", func() error {
		select {
		case <-w.dead:
			w.tail()
			w.t.Fatal("the daemon does not start")
		default:
		}
		_, err := w.once.Health(w.ctx())
		return err
	})
}

// kill is SIGKILL to the daemon; it returns when it is gone.
func (w *world) kill() {
	w.t.Helper()
	if err := w.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.t.Fatal(err)
	}
	<-w.dead
}

// order tells the daemon what to do at its points; "" is nothing.
func (w *world) order(line string) {
	w.t.Helper()
	if line == "" {
		if err := os.Remove(w.orders()); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
		return
	}
	w.runs++
	tmp := w.orders() + ".new"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%s\n%d\n", line, w.runs), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, w.orders()); err != nil {
		w.t.Fatal(err)
	}
}

// fell reports whether the daemon dies within the time.
func (w *world) fell(d time.Duration) bool {
	select {
	case <-w.dead:
		return true
	default:
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-w.dead:
		return true
	case <-late.C:
		return false
	}
}

// tail shows the end of the daemon's log.
func (w *world) tail() {
	b, err := os.ReadFile(w.log.Name())
	if err != nil {
		w.t.Log(err)
	}
	const most = 6000
	w.t.Logf("the daemon's log ends:\n%s", b[max(0, len(b)-most):])
}

// until waits for a condition.
func until(t *testing.T, what string, f func() error) {
	t.Helper()
	within(t, patience, what, f)
}

func within(t *testing.T, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s: %v", what, err)
		}
		time.Sleep(poll)
	}
}

func must[T any](w *world, what string) func(v T, err error) T {
	return func(v T, err error) T {
		w.t.Helper()
		if err != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// create makes a session without an agent.
func (w *world) create(name string) {
	w.t.Helper()
	must[api.Session](w, "create "+name)(w.c.CreateSession(w.ctx(), api.CreateSession{Name: name}))
}

func (w *world) session(ref string) api.Session {
	w.t.Helper()
	return must[api.Session](w, "show "+ref)(w.c.Session(w.ctx(), ref))
}

func (w *world) sessions() map[string]api.Session {
	w.t.Helper()
	out := map[string]api.Session{}
	for _, s := range must[api.List[api.Session]](w, "list")(w.c.Sessions(w.ctx(), api.Page{Limit: 1000})).Data {
		out[s.Name] = s
	}
	return out
}

// python runs code in a session's persistent interpreter and returns what it printed.
func (w *world) python(ref, id, code string) string {
	w.t.Helper()
	x, err := w.c.StartExec(w.ctx(), ref, api.StartExec{ID: id, Kind: "python", Code: code, Output: true})
	if err != nil {
		w.t.Fatalf("python in %s: %v", ref, err)
	}
	if x.ExitCode == nil || *x.ExitCode != 0 {
		w.t.Fatalf("python in %s: %+v", ref, x)
	}
	return strings.TrimSpace(x.Stdout)
}

// set gives the mind and the desk of a session the next value, and leaves the command's id in a file.
func (w *world) set(ref string) int {
	w.t.Helper()
	w.n++
	id := fmt.Sprintf("set-%d", w.n)
	w.python(ref, id, fmt.Sprintf("v = %d\nopen('/root/v','w').write('%d')\nopen('/root/ran','a').write('%s\\n')\n", w.n, w.n, id))
	return w.n
}

// found is what a session has in its layers.
type found struct {
	Mind string   `json:"mind"` // the variable; none
	Desk string   `json:"desk"` // the file
	Ran  []string `json:"ran"`  // commands, as they left their ids
	said string   // the last set on the transcript
}

// look asks a session for its value in all three layers, waking it for that.
func (w *world) look(ref string) found {
	w.t.Helper()
	w.runs++
	out := w.python(ref, fmt.Sprintf("look-%d", w.runs), `
import json, os
def _read(p):
    return open(p).read() if os.path.exists(p) else ''
print(json.dumps({'mind': str(globals().get('v', 'none')), 'desk': _read('/root/v'), 'ran': _read('/root/ran').split()}))
`)
	var f found
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		w.t.Fatalf("%s: %v", out, err)
	}
	f.said = w.lastSet(ref)
	once := map[string]bool{}
	for _, id := range f.Ran {
		if once[id] {
			w.t.Errorf("H4: command %s ran twice in %s", id, ref)
		}
		once[id] = true
	}
	return f
}

// lastSet returns the value of the last set on a session's timeline.
func (w *world) lastSet(ref string) string {
	w.t.Helper()
	last := ""
	for _, r := range must[api.Timeline](w, "timeline")(w.c.Timeline(w.ctx(), ref)).Ranges {
		for _, e := range w.events(r.SessionID) {
			var d struct {
				ExecID string `json:"exec_id"`
			}
			if e.Seq < r.FromSeq || e.Seq > r.ToSeq || e.Type != "exec.started" {
				continue
			}
			if err := json.Unmarshal(e.Data, &d); err != nil {
				w.t.Fatal(err)
			}
			if n, ok := strings.CutPrefix(d.ExecID, "set-"); ok {
				last = n
			}
		}
	}
	return last
}

// events reads a session's whole log and remembers it.
func (w *world) events(ref string) []api.Event {
	w.t.Helper()
	var all []api.Event
	after := uint64(0)
	for {
		page := must[api.List[api.Event]](w, "events of "+ref)(w.c.ListEvents(w.ctx(), ref, after, 1000))
		all = append(all, page.Data...)
		if !page.HasMore {
			break
		}
		after = all[len(all)-1].Seq
	}
	for _, e := range all {
		w.remember(e)
	}
	return all
}

// remember keeps an event that we were told of; one that differs from what we were told before is an error.
func (w *world) remember(e api.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.seen[e.SessionID]
	if of == nil {
		of = map[uint64]string{}
		w.seen[e.SessionID] = of
	}
	if was, ok := of[e.Seq]; ok && was != e.Hash {
		w.t.Errorf("H1: event %d of %s is another one now", e.Seq, e.SessionID)
	}
	of[e.Seq] = e.Hash
}

// follow remembers the events of a session as they come, until the daemon dies or the returned function is called.
func (w *world) follow(ref string) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx())
	done := make(chan struct{})
	after := uint64(0)
	if s, err := w.c.Session(ctx, ref); err == nil {
		after = s.LastSeq
	}
	go func() { // ends with the stream
		defer close(done)
		for item, err := range w.once.Events(ctx, ref, after) {
			if err != nil {
				return
			}
			if item.Event != nil {
				w.remember(*item.Event)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// quiet waits until nothing goes on in the background: every checkpoint is durable or failed.
func (w *world) quiet() {
	w.t.Helper()
	until(w.t, "all checkpoints are durable", w.warm)
}

// spare stands for the sandbox that a daemon keeps ready, which belongs to no session.
const spare = "spare"

// processes returns the processes that name the data directory, and which sandbox they belong to ("" for none).
func (w *world) processes() map[int]string {
	w.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[int]string{}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil || pid == w.cmd.Process.Pid {
			continue
		}
		args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.Contains(args, []byte(w.data())) {
			continue // gone meanwhile, or not ours
		}
		out[pid] = ""
		if _, rest, ok := bytes.Cut(args, []byte(w.data()+"/run/")); ok {
			out[pid] = string(rest[:min(len(rest), bytes.IndexAny(append(rest, 0), "/\x00"))])
		}
		// What was a spare has an old name in its arguments: the directory in which its shim works tells.
		if bytes.Contains(args, []byte("/spare-")) {
			out[pid] = w.owner(pid)
		}
	}
	return out
}

// owner is the sandbox of a shim, or of a child of one.
func (w *world) owner(pid int) string {
	for range 3 { // the process, its shim, and what started that
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err != nil {
			return ""
		}
		if id, ok := strings.CutPrefix(cwd, w.data()+"/run/"); ok {
			return id
		}
		if strings.HasPrefix(cwd, w.data()+"/cache/spare-") {
			return spare
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return ""
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		var state string
		if _, err := fmt.Sscan(rest, &state, &pid); err != nil {
			return ""
		}
	}
	return ""
}

// warm says which checkpoint is not durable yet, if any.
func (w *world) warm() error {
	list, err := w.once.Sessions(w.ctx(), api.Page{Limit: 1000})
	if err != nil {
		return err
	}
	for _, s := range list.Data {
		list, err := w.once.Checkpoints(w.ctx(), s.ID, api.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, c := range list.Data {
			if c.State != "durable" && c.State != "failed" {
				return fmt.Errorf("%s of %s is %s", c.ID, s.Name, c.State)
			}
		}
	}
	return nil
}
