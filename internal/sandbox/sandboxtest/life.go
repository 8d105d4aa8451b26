package sandboxtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

func command(t testing.TB, argv ...string) ([]byte, error) {
	return exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
}

func execOf(argv ...string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: argv}
}

func pause(t *testing.T, b *bench) {
	s := b.start()
	b.begin(s, execOf("/bin/bash", "-c", "cd; while :; do echo tick >> ticks; sleep 0.02; done"))
	ticks := func() int {
		data, _ := os.ReadFile(b.home("ticks"))
		return strings.Count(string(data), "\n")
	}
	b.until("it ticks", func() bool { return ticks() > 3 })
	if err := s.Pause(b.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(b.ctx()); err != nil {
		t.Errorf("pausing twice: %v", err)
	}
	if st := b.state(s); st.State != sandbox.Paused {
		t.Errorf("state %s", st.State)
	}
	before := ticks()
	time.Sleep(200 * time.Millisecond) // ten ticks' time in which none may come: nothing signals an absence
	if after := ticks(); after != before {
		t.Errorf("%d ticks while paused", after-before)
	}
	if err := s.Unpause(b.ctx()); err != nil {
		t.Fatal(err)
	}
	b.until("it ticks again", func() bool { return ticks() > before })
	if st := b.state(s); st.State != sandbox.Running {
		t.Errorf("state %s", st.State)
	}
}

// home is a file of the commands' home directory, seen from the host.
func (b *bench) home(name string) string {
	if b.caps.Isolation == "none" {
		return filepath.Join(b.spec.Root.Upper, name)
	}
	return filepath.Join(b.spec.Root.Upper, "root", name)
}

func network(t *testing.T, b *bench) {
	b.need(b.caps.Network, "Network")
	s := b.start()
	began := time.Now()
	r := b.run(s, `python3 - <<'E'
import socket
def attempt(name, f):
    try: f(); print(name, "passed")
    except OSError as e: print(name, type(e).__name__)
attempt("tcp", lambda: socket.create_connection(("93.184.216.34", 80), 20))
attempt("gateway", lambda: socket.create_connection(("10.0.2.2", 22), 20))
attempt("dns", lambda: socket.getaddrinfo("example.com", 80))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20); u.connect(("8.8.8.8", 9999)); u.send(b"x")
attempt("udp", lambda: u.recv(1))
l = socket.create_server(("127.0.0.1", 0)); attempt("loopback", lambda: socket.create_connection(l.getsockname(), 5))
E`)
	want := "tcp ConnectionRefusedError\ngateway ConnectionRefusedError\ndns gaierror\nudp ConnectionRefusedError\nloopback passed\n"
	if r.out != want {
		t.Errorf("got\n%s%s\nwant\n%s", r.out, r.err, want)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("refusing took %v", took)
	}
	if len(b.state(s).Missing) > 0 {
		t.Errorf("missing: %v", b.state(s).Missing)
	}
}

func statusNamesProcesses(t *testing.T, b *bench) {
	s := b.start()
	st := b.state(s)
	if len(st.PIDs) < 2 || st.ID != b.spec.ID || st.State != sandbox.Running || st.StartedAt.IsZero() {
		t.Errorf("%+v", st)
	}
	for _, pid := range st.PIDs {
		if _, err := os.Stat(filepath.Join("/proc", itoa(pid))); err != nil {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if b.caps.Isolation == "none" && len(st.Missing) == 0 {
		t.Error("nothing is said of the missing isolation")
	}
}

func destroyTwice(t *testing.T, b *bench) {
	s := b.start()
	long := b.begin(s, execOf("sleep", "1000"))
	ended := make(chan sandbox.Status, 1)
	go func() {
		st, err := s.Wait(b.ctx())
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		ended <- st
	}()
	for range 2 {
		if err := s.Destroy(b.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if st := <-ended; st.State != sandbox.Dead {
		t.Errorf("wait says %+v", st)
	}
	if st := b.state(s); st.State != sandbox.Dead || st.Cause == "" {
		t.Errorf("status says %+v", st)
	}
	r := b.wait(s, long)
	if r.State != sandbox.ExecLost || r.ExitCode != nil || r.Cause == "" {
		t.Errorf("the command: %+v", r.ExecStatus)
	}
	if _, err := s.Execs().Start(b.ctx(), execOf("true")); errdefs.CodeOf(err) != "sandbox_dead" {
		t.Errorf("starting a command in a destroyed sandbox: %v", err)
	}
}

func startCancelled(t *testing.T, b *bench) {
	for _, after := range []time.Duration{0, 30 * time.Millisecond, 150 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(b.ctx(), after)
		spec := b.next()
		s, err := b.driver.Start(ctx, spec)
		cancel()
		if err == nil {
			b.keep(s, spec)
			continue
		}
		if err := os.Remove(filepath.Join(spec.StateDir, "shim.log")); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		noTrace(t, spec)
	}
}
