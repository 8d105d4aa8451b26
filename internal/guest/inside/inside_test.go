package inside

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// An interpreter reads a header in one call: it must have one length and fit into a pipe at once.
func TestHeaderHasOneLength(t *testing.T) {
	const pipeBuf = 4096 // PIPE_BUF of Linux
	for _, exec := range []string{"e", strings.Repeat("x", wire.MaxExecID)} {
		h := header(1<<62, exec, true, "4294967295")
		if len(h) != headerLength || headerLength > pipeBuf || h[len(h)-1] != ' ' {
			t.Errorf("%d bytes: %q", len(h), h)
		}
		if f := strings.Fields(string(h)); len(f) != 4 || f[1] != exec || f[2] != "1" || f[3] != "4294967295" {
			t.Errorf("%q", f)
		}
	}
}

// The variables are those of the newest file that is whole: a shell may die while it writes.
func TestSavedExports(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		if got := savedExports(dir); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	want("")
	put("exports.1", "declare -x A=\"1\"\n\x001\x00")
	want("declare -x A=\"1\"\n")
	put("exports.0", "declare -x A=\"10\"\n\x0010\x00")
	want("declare -x A=\"10\"\n")
	put("exports.1", "declare -x A=\"11\"\ndecl")
	want("declare -x A=\"10\"\n")
	put("exports.1", "declare -x A=\"11\"\n\x0011")
	want("declare -x A=\"10\"\n")
}

// Whatever else comes on the pipe of answers, an answer is found.
func TestListenSkipsNoise(t *testing.T) {
	far, near, err := pipe(true)
	if err != nil {
		t.Fatal(err)
	}
	p := &interpProc{answers: make(chan answer, 4), exited: make(chan struct{}), reseeded: make(chan string, 1)}
	w := os.NewFile(uintptr(far), "pipe")
	noise := "from a trap\n\x00\x00more\x00perdur"
	for _, s := range []string{noise, "\x00perdure\x001\x00opened\x00\x00", noise, "\x00perdure\x001\x007\x00/a\nb\x00", "\x00perdure\x00reseeded\x00random\x00/\x00"} {
		if _, err := w.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	p.listen(near) // until the end of the pipe
	for _, want := range []answer{{"1", "opened", ""}, {"1", "7", "/a\nb"}} {
		if got := <-p.answers; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := <-p.reseeded; got != "random" {
		t.Errorf("%q", got)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"bin/run": 0o755, "bin/plain": 0o644, "later/plain": 0o755, "here": 0o755, "off": 0o600} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ name, path, want, code string }{
		{"run", dir + "/bin", dir + "/bin/run", ""},
		{"plain", dir + "/bin:" + dir + "/later", dir + "/later/plain", ""}, // the first that can be run
		{"plain", dir + "/bin", "", "command_not_executable"},
		{"none", dir + "/bin", "", "command_not_found"},
		{"here", "/nowhere:", "./here", ""}, // an empty element is the directory itself
		{"./here", "", "./here", ""},
		{"./off", "", "", "command_not_executable"},
		{"./bin", "", "", "command_not_executable"},
		{dir + "/none", "", "", "command_not_found"},
	} {
		got, err := lookPath(x.name, dir, []string{"PATH=" + x.path})
		var w *wire.Error
		errors.As(err, &w)
		if got != x.want || (w == nil) != (x.code == "") || w != nil && w.Code != x.code {
			t.Errorf("%s in %q: %q, %v; want %q %s", x.name, x.path, got, err, x.want, x.code)
		}
	}
}

// testGuest is a guest that talks to nobody.
func testGuest(t *testing.T) *Guest {
	t.Helper()
	g, err := newGuest(Config{RunDir: t.TempDir(), Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *Guest) testCommand() *command {
	c := &command{g: g, spec: wire.ExecSpec{ID: "e", Kind: "process"}, done: make(chan struct{})}
	c.streams = [2]*stream{g.out.newStream(c, wire.Stdout), g.out.newStream(c, wire.Stderr)}
	return c
}

// What was written before drain is in the outbox after it, in order, although the pump reads at the same time; and a writer that goes on
// does not prolong it.
func TestDrainTakesWhatIsThere(t *testing.T) {
	g := testGuest(t)
	for round := range 50 {
		c := g.testCommand()
		far, near, err := pipe(true)
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.startPump(near, c.streams[0])
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		for i := range 200 {
			piece := strconv.Itoa(i) + ","
			want.WriteString(piece)
			if _, err := unix.Write(far, []byte(piece)); err != nil {
				t.Fatal(err)
			}
		}
		p.drain()
		g.out.mu.Lock()
		got := string(c.streams[0].data)
		g.out.mu.Unlock()
		unix.Close(far)
		if got != want.String() {
			t.Fatalf("round %d: got %d bytes of %d: %q", round, len(got), want.Len(), got)
		}
	}
}

// A full stream holds up its own writer until the host has acknowledged, and no other.
func TestFullStreamHoldsUpItsWriter(t *testing.T) {
	g := testGuest(t)
	c := g.testCommand()
	full, other := c.streams[0], c.streams[1]
	g.out.write(full, make([]byte, retain))
	wrote := make(chan struct{})
	go func() {
		g.out.write(full, []byte("more"))
		close(wrote)
	}()
	g.out.write(other, []byte("free"))
	select {
	case <-wrote:
		t.Error("a full stream took more")
	case <-time.After(20 * time.Millisecond): // it has had its chance
	}
	g.out.ack(full, 10)
	<-wrote
	if full.start != 10 || full.produced() != retain+4 || other.produced() != 4 {
		t.Errorf("%d to %d, %d", full.start, full.produced(), other.produced())
	}
}

// The end of an own child is told to whoever waits for it, also if it came before the pid was known.
func TestReaperLosesNoEnd(t *testing.T) {
	r := newReaper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := null.Fd()
	for want := range 20 {
		_, ends, err := r.start(func() (int, error) {
			argv := []string{"sh", "-c", "exit " + strconv.Itoa(want)}
			pid, err := syscall.ForkExec("/bin/sh", argv, &syscall.ProcAttr{Files: []uintptr{fd, fd, fd}})
			if want%2 == 0 { // it ends, and is seen, before start knows of it
				for err == nil && len(r.unclaimed) == 0 {
					r.reap()
				}
			}
			return pid, err
		})
		if err != nil {
			t.Fatal(err)
		}
		for got := false; !got; {
			r.reap()
			select {
			case ws := <-ends:
				got = true
				if ws.ExitStatus() != want {
					t.Errorf("got %d, want %d", ws.ExitStatus(), want)
				}
			default:
			}
		}
	}
	if len(r.children) != 0 || len(r.unclaimed) != 0 {
		t.Errorf("%d children, %d ends are left", len(r.children), len(r.unclaimed))
	}
}
