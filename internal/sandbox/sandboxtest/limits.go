package sandboxtest

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/internal/sandbox"
)

// needLimits skips where the driver says that it keeps no limits.
func (b *bench) needLimits() {
	b.need(b.caps.Isolation != "none", "Isolation")
	for _, m := range b.caps.Missing {
		if strings.HasPrefix(m, "limits") {
			b.need(false, "limits")
		}
	}
}

// The hog dies, everything else in the sandbox lives, and the hog's command says why it ended.
func memoryLimit(t *testing.T, b *bench) {
	b.needLimits()
	b.spec.Limits.MemoryBytes = 256 << 20
	s := b.start()
	if kb := b.ok(s, "awk '/MemTotal/{print $2}' /proc/meminfo"); kb != "262144" {
		t.Errorf("MemTotal is %s kB", kb)
	}
	bystander := b.begin(s, execOf("sleep", "1000"))
	keeper := func(code string) sandbox.ExecSpec { return sandbox.ExecSpec{Kind: sandbox.ExecPython, Code: code} }
	if r := b.wait(s, b.begin(s, keeper("kept = 42"))); code(r.ExecStatus) != 0 {
		t.Fatalf("python: %+v: %s", r.ExecStatus, r.err)
	}
	for _, hog := range []string{
		"x = bytearray(1 << 30)",                            // in one stroke
		"x = []\nwhile True: x.append(bytearray(16 << 20))", // in many
		"import os\nos.fork()\nx = b'x' * (1 << 30)",        // by two at once
	} {
		for range 3 {
			r := b.wait(s, b.begin(s, execOf("python3", "-c", hog)))
			if r.Signal != "SIGKILL" || !strings.Contains(r.Cause, "256 MiB") {
				t.Errorf("%q: %+v: %s", hog, r.ExecStatus, r.err)
			}
		}
	}
	// A hog below a shell: the shell tells how its child ended, and the cause tells why.
	r := b.run(s, "python3 -c 'x = bytearray(1 << 30)'; echo it ended with $?")
	if !strings.Contains(r.out, "it ended with 137") || !strings.Contains(r.Cause, "256 MiB") {
		t.Errorf("%+v: %s", r.ExecStatus, r.out)
	}
	// Files in memory count, and no process could be ended for them: so there is room for half as much.
	r = b.run(s, "head -c 400M /dev/zero >/dev/shm/x; stat -c %s /dev/shm/x; rm /dev/shm/x")
	if size := strings.TrimSpace(r.out); size != strconv.Itoa(128<<20) {
		t.Errorf("%s bytes in /dev/shm: %s", size, r.err)
	}
	if st := b.state(s); st.State != sandbox.Running {
		t.Fatalf("the sandbox: %+v", st)
	}
	if r := b.wait(s, b.begin(s, keeper("print(kept)"))); strings.TrimSpace(r.out) != "42" {
		t.Errorf("the interpreter has lost what it knew: %+v: %s%s", r.ExecStatus, r.out, r.err)
	}
	if st, err := s.Execs().Status(b.ctx(), bystander); err != nil || st.State != sandbox.ExecRunning {
		t.Errorf("the bystander: %+v, %v", st, err)
	}
	// What is within the limit is left alone, and files that the kernel caches do not count.
	if out := b.ok(s, "cd; head -c 400M /dev/zero >file; cat file >/dev/null; python3 -c 'print(len(b\"x\" * (150 << 20)))'"); out != strconv.Itoa(150<<20) {
		t.Errorf("within the limit: %q", out)
	}
}

// A restored sandbox keeps the limits that it is restored with.
func limitsAfterRestore(t *testing.T, b *bench) {
	b.needLimits()
	b.need(b.caps.Memory, "Memory")
	b.spec.Limits = sandbox.Limits{MemoryBytes: 256 << 20, Processes: 20}
	s := b.start()
	b.ok(s, "true")
	warm, layers := b.checkpoint(s, b.spec, false)
	spec := b.fork("copy")
	spec.Root.Layers = layers
	spec.Limits = sandbox.Limits{MemoryBytes: 256 << 20, Processes: 30}
	s = b.restore(spec, warm.Image())
	r := b.wait(s, b.begin(s, execOf("python3", "-c", "x = bytearray(1 << 30)")))
	if r.Signal != "SIGKILL" || !strings.Contains(r.Cause, "256 MiB") {
		t.Errorf("the hog: %+v: %s", r.ExecStatus, r.err)
	}
	if n := b.fill(s); n < 25 || n > 30 {
		t.Errorf("%d processes", n)
	}
}

// fill starts as many processes as it can, and returns how many there were at once.
func (b *bench) fill(s sandbox.Sandbox) int {
	b.t.Helper()
	out := b.ok(s, `python3 - <<'E'
import subprocess
all = []
try:
    while len(all) < 300: all.append(subprocess.Popen(["sleep", "1000"]))
except BlockingIOError: pass
print(len(all) + 2) # itself, and the shell
for p in all: p.kill()
for p in all: p.wait()
E`)
	n, err := strconv.Atoi(out)
	if err != nil {
		b.t.Errorf("%q: %v", out, err)
	}
	return n
}

// At the limit a program cannot fork any more; the guest, and whoever asks it, does not notice.
func processLimit(t *testing.T, b *bench) {
	b.needLimits()
	b.spec.Limits.Processes = 20
	s := b.start()
	if st := b.state(s); len(st.Missing) > 0 {
		t.Errorf("missing: %v", st.Missing)
	}
	for range 2 { // what has ended does not count
		if n := b.fill(s); n < 15 || n > 20 {
			t.Errorf("%d processes at once", n)
		}
	}
	// A session that detaches itself is no way out.
	r := b.run(s, "for i in $(seq 40); do setsid sleep 30 & done 2>/dev/null; ps -e | grep -c sleep; pkill sleep")
	if n, err := strconv.Atoi(strings.TrimSpace(strings.Split(r.out, "\n")[0])); err == nil && n > 20 {
		t.Errorf("%d processes at once", n)
	}
}

func forkBomb(t *testing.T, b *bench) {
	b.needLimits()
	b.spec.Limits.Processes = 100
	s := b.start()
	bomb := b.begin(s, execOf("bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000"))
	b.until("the limit is reached", func() bool {
		procs, err := s.Files().Processes(b.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return len(procs) > 90
	})
	for range 20 {
		if _, err := s.Files().List(b.ctx(), "/root"); err != nil {
			t.Fatalf("the guest: %v", err)
		}
		if st := b.state(s); st.State != sandbox.Running {
			t.Fatalf("the sandbox: %+v", st)
		}
	}
	if err := s.Execs().Signal(b.ctx(), bomb, int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	b.wait(s, bomb)
	b.until("the bomb has ended", func() bool {
		procs, err := s.Files().Processes(b.ctx())
		return err == nil && len(procs) < 5
	})
	b.ok(s, "true")
}
