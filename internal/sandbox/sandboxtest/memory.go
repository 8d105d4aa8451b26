package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

func itoa(n int) string { return strconv.Itoa(n) }

func checkpointRunning(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	writer := b.begin(s, execOf("/bin/bash", "-c", "cd; i=0; while :; do i=$((i+1)); echo $i >> log; done"))
	b.until("the writer writes", func() bool { _, err := os.Stat(b.home("log")); return err == nil })
	warm, layers := b.checkpoint(s, b.spec, false)
	if warm.Pause() <= 0 || warm.Image().Bytes <= 0 || warm.Image().Driver != b.driver.Name() {
		t.Errorf("checkpoint: %+v, pause %v", warm.Image(), warm.Pause())
	}
	if err := warm.Persist(b.ctx()); err != nil {
		t.Error(err)
	}
	fork := b.fork("fork")
	fork.Root.Layers = layers
	f := b.restore(fork, warm.Image())
	for name, each := range map[string]sandbox.Sandbox{"parent": s, "fork": f} {
		if st := b.state(each); st.State != sandbox.Running {
			t.Errorf("%s is %s", name, st.State)
		}
		before := b.ok(each, "tail -n 1 /root/log")
		b.until(name+" writes on", func() bool { return b.ok(each, "tail -n 1 /root/log") != before })
		// Not a line lost, doubled or torn: memory and files are of one moment.
		if got := b.ok(each, "head -n -1 /root/log | awk '$1 != NR {print NR\": \"$0; exit}'"); got != "" {
			t.Errorf("%s: the log breaks at line %s", name, got)
		}
	}
	if err := s.Execs().Signal(b.ctx(), writer, 9); err != nil {
		t.Error(err)
	}
}

// world starts a Python with data in memory, a web server and an established TCP connection on loopback.
const world = `
import http.server, os, random, socket, threading, time
data = {"answer": 42, "big": bytes(range(256)) * 4096}
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{data['answer']} {len(data['big'])} {os.getpid()}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 8123), H).serve_forever, daemon=True).start()
l = socket.create_server(("127.0.0.1", 8124)); c = socket.create_connection(("127.0.0.1", 8124)); p, _ = l.accept()
f = open("/root/open", "w+"); f.write("before "); f.flush()
gone = open("/root/gone", "w+"); gone.write("unlinked"); gone.flush(); os.unlink("/root/gone")
print("ready", flush=True)
while True:
    line = input()
    if line == "tcp": c.sendall(b"ping"); print(p.recv(4).decode(), flush=True)
    if line == "file": f.write("after"); f.flush(); print(open("/root/open").read(), flush=True)
    if line == "gone": gone.seek(0); print(gone.read(), flush=True)
    if line == "add": data["answer"] += 1; print(data["answer"], flush=True)
`

func restoreContinues(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	repl := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: []string{"python3", "-c", world}, Stdin: true, Background: true})
	b.until("the world is ready", func() bool { return strings.HasPrefix(b.output(s, repl, sandbox.Stdout), "ready") })
	warm, layers := b.checkpoint(s, b.spec, true)
	if st := b.state(s); st.State != sandbox.Paused {
		t.Errorf("after LeavePaused it is %s", st.State)
	}
	if err := s.Destroy(b.ctx()); err != nil {
		t.Fatal(err)
	}
	b.spec = b.next()
	b.spec.Root.Layers = layers
	s = b.restore(b.spec, warm.Image())
	if got := b.ok(s, "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8123\").read().decode())'"); !strings.HasPrefix(got, "42 1048576 ") {
		t.Errorf("the web server says %q", got)
	}
	st, err := s.Execs().Status(b.ctx(), repl)
	if err != nil || st.State != sandbox.ExecRunning {
		t.Fatalf("X2: the command is %+v, %v", st, err)
	}
	offset := int64(0)
	for _, step := range []struct{ say, hear string }{{"tcp", "ping"}, {"file", "before after"}, {"gone", "unlinked"}, {"add", "43"}} {
		line := []byte(step.say + "\n")
		if err := s.Execs().Stdin(b.ctx(), repl, offset, line, false); err != nil {
			t.Fatal(err)
		}
		offset += int64(len(line))
		b.until(step.say+" is answered with "+step.hear, func() bool {
			return strings.HasSuffix(b.output(s, repl, sandbox.Stdout), step.hear+"\n")
		})
	}
}

func tenCycles(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	counter := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Stdin: true, Argv: []string{
		"python3", "-uc", "n = 0\nwhile True:\n  input(); n += 1; open(f'/root/file{n}', 'w').write(str(n)); print(n)"}})
	for cycle := 1; cycle <= 10; cycle++ {
		if err := s.Execs().Stdin(b.ctx(), counter, int64(cycle-1), []byte("\n"), false); err != nil {
			t.Fatal(err)
		}
		b.until(fmt.Sprintf("it counts to %d", cycle), func() bool {
			return strings.HasSuffix(b.output(s, counter, sandbox.Stdout), itoa(cycle)+"\n")
		})
		warm, layers := b.checkpoint(s, b.spec, true)
		if err := s.Destroy(b.ctx()); err != nil {
			t.Fatal(err)
		}
		noTrace(t, b.spec)
		b.spec = b.next()
		b.spec.Root.Layers = layers
		s = b.restore(b.spec, warm.Image())
	}
	if got := b.ok(s, "cat /root/file* | tr -d '\\n'; ls /root | wc -l"); got != "1102345678910" && got != "11023456789"+"10" {
		t.Errorf("files: %q", got)
	}
	if got := b.output(s, counter, sandbox.Stdout); got != "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n" {
		t.Errorf("S8: output of the command over all cycles: %q", got)
	}
}

func copiesDiffer(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	python := func(s sandbox.Sandbox, script string) string {
		return b.wait(s, b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecPython, Code: script})).out
	}
	python(s, "import random, ssl, uuid\nrandom.seed(1)")
	warm, layers := b.checkpoint(s, b.spec, false)
	seen := map[string]map[string]string{}
	look := func(name string, s sandbox.Sandbox) {
		for what, value := range map[string]string{
			"kernel":     b.ok(s, "head -c 16 /dev/urandom | od -An -tx1"),
			"random":     python(s, "print(random.random())"),
			"ssl":        python(s, "print(ssl.RAND_bytes(16).hex())"),
			"uuid":       python(s, "print(uuid.uuid4())"),
			"hostname":   b.ok(s, "hostname"),
			"machine id": b.ok(s, "cat /etc/machine-id"),
		} {
			if seen[what] == nil {
				seen[what] = map[string]string{}
			}
			if other, dup := seen[what][value]; dup {
				t.Errorf("%s and %s have the same %s: %q", name, other, what, value)
			}
			seen[what][value] = name
		}
	}
	for _, name := range []string{"one", "two"} {
		fork := b.fork(name)
		fork.Root.Layers = layers
		look(name, b.restore(fork, warm.Image()))
	}
	look("parent", s)
}

func clockAfterRestore(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	timer := b.begin(s, execOf("/bin/bash", "-c", "sleep 1; echo fired"))
	warm, layers := b.checkpoint(s, b.spec, true)
	if err := s.Destroy(b.ctx()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond) // the outside world goes on
	b.spec = b.next()
	b.spec.Root.Layers = layers
	s = b.restore(b.spec, warm.Image())
	// However long the answer takes, it was given between the two. What is left must be less than the sleep, which a clock that nobody
	// stepped is behind by.
	const slack = 0.5
	before := float64(time.Now().UnixMilli()) / 1000
	inside, err := strconv.ParseFloat(b.ok(s, "date +%s.%N"), 64)
	after := float64(time.Now().UnixMilli()) / 1000
	if err != nil || inside < before-slack || inside > after+slack {
		t.Errorf("C1: inside it is %f, outside between %f and %f, %v", inside, before, after, err)
	}
	if r := b.wait(s, timer); r.out != "fired\n" {
		t.Errorf("C3: the timer: %+v %q", r.ExecStatus, r.out)
	}
}

func dataInFlight(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	const lines = 300_000
	exec := b.begin(s, execOf("seq", "1", itoa(lines)))
	for range 3 {
		b.checkpoint(s, b.spec, false)
	}
	r := b.wait(s, exec)
	got := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	if len(got) != lines {
		t.Fatalf("%d lines of %d", len(got), lines)
	}
	for i, line := range got {
		if line != itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}

func failedCheckpoint(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	exec := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: []string{"cat"}, Stdin: true})
	dir := b.mkdir("images/failed")
	full := errdefs.New(errdefs.Exhausted, "disk_full", "no space for the files")
	_, err := s.Checkpoint(b.ctx(), sandbox.CheckpointRequest{Dir: dir, Cut: func(context.Context) error { return full }})
	if !errors.Is(err, full) || errdefs.KindOf(err) != errdefs.Exhausted {
		t.Errorf("failed cut: %v", err)
	}
	if _, err := s.Checkpoint(b.ctx(), sandbox.CheckpointRequest{Dir: filepath.Join(b.dir, "nowhere")}); err == nil {
		t.Error("a checkpoint into a missing directory succeeded")
	}
	ctx, cancel := context.WithCancel(b.ctx())
	_, err = s.Checkpoint(ctx, sandbox.CheckpointRequest{Dir: dir, Cut: func(ctx context.Context) error {
		cancel() // the caller dies
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	if err == nil {
		t.Error("a checkpoint whose caller went away succeeded")
	}
	b.until("the sandbox runs", func() bool { return b.state(s).State == sandbox.Running })
	b.until("the directory is empty", func() bool { left, _ := os.ReadDir(dir); return len(left) == 0 })
	if err := s.Execs().Stdin(b.ctx(), exec, 0, []byte("alive"), true); err != nil {
		t.Fatal(err)
	}
	if r := b.wait(s, exec); r.out != "alive" {
		t.Errorf("the command: %+v %q", r.ExecStatus, r.out)
	}
	b.checkpoint(s, b.spec, false)
}

func failedRestore(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	warm, layers := b.checkpoint(s, b.spec, false)
	image := warm.Image()
	broken := image
	broken.Dir = b.mkdir("images/broken")
	entries, err := os.ReadDir(image.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(image.Dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 1000 && e.Name() == "checkpoint.img" {
			data = data[:len(data)/2]
		}
		if err := os.WriteFile(filepath.Join(broken.Dir, e.Name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := image
	other.Version = "another"
	for name, bad := range map[string]sandbox.Image{"broken": broken, "of another version": other, "missing": {Dir: b.dir, Driver: image.Driver, Version: image.Version}} {
		spec := b.fork("bad")
		spec.Root.Layers = layers
		if _, err := b.driver.Restore(b.ctx(), spec, bad); err == nil {
			t.Errorf("an image %s was restored", name)
		} else if errdefs.CodeOf(err) == "internal" {
			t.Errorf("an image %s: error without a code: %v", name, err)
		}
		_ = os.Remove(filepath.Join(spec.StateDir, "shim.log"))
		noTrace(t, spec)
	}
	good := b.fork("good")
	good.Root.Layers = layers
	b.ok(b.restore(good, image), "true")
	b.ok(s, "true")
}
