package link_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// cutter is a proxy between guest and link that cuts each connection after a random number of bytes, in mid-frame mostly.
type cutter struct {
	listener net.Listener
	target   string
	mu       sync.Mutex // guards all below
	rng      *rand.Rand
	cuts     int
}

func newCutter(t *testing.T, path, target string) *cutter {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, target: target, rng: rand.New(rand.NewPCG(1, 2))}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			guest, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(guest)
		}
	}()
	return c
}

func (c *cutter) pass(guest net.Conn) {
	defer guest.Close()
	host, err := net.Dial("unix", c.target)
	if err != nil {
		return
	}
	defer host.Close()
	c.mu.Lock()
	up, down := c.rng.Int64N(4<<20), c.rng.Int64N(4<<20)
	c.mu.Unlock()
	done := make(chan struct{}, 2)
	move := func(dst, src net.Conn, n int64) {
		io.CopyN(dst, src, n)
		done <- struct{}{}
	}
	go move(host, guest, up)
	go move(guest, host, down)
	<-done
	c.mu.Lock()
	c.cuts++
	c.mu.Unlock()
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// N2 and X6: 24 MB flow in through stdin and out again, and 24 more out, while the connection is cut again and again in both directions.
func TestN2_NothingLostOrDoubledWhenTheConnectionBreaks(t *testing.T) {
	r := newRigWithoutGuest(t)
	c := newCutter(t, filepath.Join(r.dir, "c"), r.socket)
	r.startGuest(filepath.Join(r.dir, "c"))
	const size = 24 << 20
	spec := process("cat")
	spec.Stdin = true
	echo := r.start(spec)
	source := r.start(process("python3", "-S", "-c", patternProgram(size)))
	data := pattern(size)
	for off := 0; off < len(data); {
		n := min(1<<20, len(data)-off)
		if err := r.link.Execs().Stdin(r.ctx(), echo, int64(off), data[off:off+n], off+n == len(data)); err != nil {
			t.Fatal(err)
		}
		off += n
		if off%(8<<20) == 0 {
			r.link.Drop()
		}
	}
	want := sha256.Sum256(data)
	for _, exec := range []id.Exec{echo, source} {
		if st := r.wait(exec); code(st) != 0 || st.StdoutSize != size {
			t.Fatalf("%+v %s", st, r.output(exec, sandbox.Stderr))
		}
		if got := sha256.Sum256([]byte(r.output(exec, sandbox.Stdout))); got != want {
			t.Errorf("the output differs")
		}
		if _, err := os.Stat(filepath.Join(r.spool.Dir(), string(exec), "stdout.1")); err == nil {
			t.Errorf("the output was taken for another timeline's")
		}
	}
	if c.count() < 5 {
		t.Errorf("only %d cuts", c.count())
	}
	t.Logf("%d cuts", c.count())
}

// N2: commands started while the connection breaks run once each.
func TestN2_RequestsRunOnceWhenTheConnectionBreaks(t *testing.T) {
	r := newRigWithoutGuest(t)
	r.startGuest(r.socket)
	stop := make(chan struct{})
	var dropper sync.WaitGroup
	dropper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				r.link.Drop()
			}
		}
	})
	const n = 100
	for i := range n {
		exec := r.start(shell(fmt.Sprintf("echo %d >> log; echo %d", i, i)))
		if st := r.wait(exec); code(st) != 0 || r.output(exec, sandbox.Stdout) != fmt.Sprintf("%d\n", i) {
			t.Fatalf("%d: %+v %q", i, st, r.output(exec, sandbox.Stdout))
		}
	}
	close(stop)
	dropper.Wait()
	_, out, _ := r.run(shell("cat log"))
	var want bytes.Buffer
	for i := range n {
		fmt.Fprintln(&want, i)
	}
	if out != want.String() {
		t.Errorf("log %q", out)
	}
}

// A link that is opened anew, as by a shim that was restarted, finds the commands that went on meanwhile.
func TestLinkRestart(t *testing.T) {
	r := newRig(t)
	exec := r.start(shell("echo before; until [ -e go ]; do sleep 0.01; done; echo after; exit 9"))
	r.eventually("begun", func() bool { return r.output(exec, sandbox.Stdout) == "before\n" })
	r.link.Close()
	r.spool.Close()
	r.openLink(spool.Options{})
	if st, err := r.link.Execs().Status(r.ctx(), exec); err != nil || st.State != sandbox.ExecRunning {
		t.Fatalf("%+v %v", st, err)
	}
	r.run(process("touch", "go"))
	if st := r.wait(exec); code(st) != 9 || r.output(exec, sandbox.Stdout) != "before\nafter\n" {
		t.Errorf("%+v %q", st, r.output(exec, sandbox.Stdout))
	}
}

// SIGUSR1 makes the guest dial anew at once.
func TestRedialOnSignal(t *testing.T) {
	r := newRig(t)
	r.run(process("true"))
	for range 3 {
		r.guest.Process.Signal(redialSignal)
		if st, _, _ := r.run(process("true")); code(st) != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// pattern is text of numbered lines, so that every kilobyte is recognisable.
func pattern(size int) []byte {
	b := make([]byte, 0, size+1000)
	filler := bytes.Repeat([]byte{'.'}, 990)
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, "%09d", i)
		b = append(append(b, filler...), '\n')
	}
	return b[:size]
}

// patternProgram is Python that writes pattern(size).
func patternProgram(size int) string {
	return fmt.Sprintf(`
import os
i = done = 0
while done < %d:
    piece = b"".join(b"%%09d" %% j + b"." * 990 + b"\n" for j in range(i, i + 100))[:%d - done]
    i += 100
    done += len(piece)
    while piece: piece = piece[os.write(1, piece):]
`, size, size)
}
