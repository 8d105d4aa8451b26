package link_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/guest/link"
	"perdure.dev/perdure/internal/sandbox"
)

func (r *rig) expect(spec sandbox.ExecSpec, wantCode int, wantOut string) sandbox.ExecStatus {
	r.t.Helper()
	st, out, errOut := r.run(spec)
	if code(st) != wantCode || out != wantOut {
		r.t.Errorf("%q: code %d, stdout %q, stderr %q, cause %q; want %d, %q", spec.Code, code(st), out, errOut, st.Cause, wantCode, wantOut)
	}
	return st
}

func TestShellPersists(t *testing.T) {
	r := newRig(t)
	r.expect(shell("cd /usr; export A='x y'; B=z; f() { echo f$1; }; shopt -s extglob"), 0, "")
	r.expect(shell(`pwd; echo "$A $B"; f 1; shopt -q extglob && echo glob; sh -c 'echo $A'`), 0, "/usr\nx y z\nf1\nglob\nx y\n")
	r.expect(shell("false"), 1, "")
	r.expect(shell("return 7"), 7, "")
	r.expect(shell("cat <<E\na\nb\nE\ncat"), 0, "a\nb\n")
	r.expect(shell("nonsense-command"), 127, "")
	r.expect(shell("if"), 2, "")
	r.expect(shell("echo $B"), 0, "z\n")
}

func TestShellExitRestarts(t *testing.T) {
	r := newRig(t)
	r.expect(shell("cd /usr; export KEEP='a \"b\" $c'; LOSE=1"), 0, "")
	st := r.expect(shell("echo bye; exit 5"), 5, "bye\n")
	if !strings.Contains(st.Cause, "ended its interpreter") {
		t.Errorf("cause %q", st.Cause)
	}
	st = r.expect(shell(`pwd; echo "$KEEP$LOSE"`), 0, "/usr\na \"b\" $c\n")
	if !strings.Contains(st.Cause, "started anew") {
		t.Errorf("cause %q", st.Cause)
	}
}

func TestShellStdin(t *testing.T) {
	r := newRig(t)
	spec := shell("read a; read b; echo $b $a; cat")
	spec.Stdin = true
	exec := r.start(spec)
	if err := r.link.Execs().Stdin(r.ctx(), exec, 0, []byte("1\n2\nrest"), true); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(exec); code(st) != 0 || r.output(exec, sandbox.Stdout) != "2 1\nrest" {
		t.Errorf("%+v %q", st, r.output(exec, sandbox.Stdout))
	}
}

func TestShellBackgroundKeepsItsStream(t *testing.T) {
	r := newRig(t)
	first := r.start(shell("(until [ -e go ]; do sleep 0.02; done; echo late; touch done) & echo first"))
	if st := r.wait(first); code(st) != 0 {
		t.Fatalf("%+v", st)
	}
	second := r.start(shell("touch go; until [ -e done ]; do sleep 0.02; done; echo second"))
	r.wait(second)
	if out := r.output(second, sandbox.Stdout); out != "second\n" {
		t.Errorf("second %q", out)
	}
	r.eventually("late output in its own stream", func() bool { return r.output(first, sandbox.Stdout) == "first\nlate\n" })
}

func TestShellTimeoutKeepsTheShell(t *testing.T) {
	r := newRig(t)
	r.expect(shell("VAR=kept"), 0, "")
	for _, code := range []string{
		"sleep 100; echo no", "while :; do :; done", "f() { while :; do sleep 0.05; done; }; while :; do f; done; echo no",
		"setsid sleep 98 & sleep 99 | cat",
	} {
		spec := shell(code)
		spec.Timeout = 300 * time.Millisecond
		began := time.Now()
		st, out, errOut := r.run(spec)
		if took := time.Since(began); took > 3*time.Second || !st.TimedOut || st.Signal != "SIGKILL" || st.ExitCode != nil || out != "" {
			t.Errorf("%q: took %s, %+v, %q %q", code, took, st, out, errOut)
		}
		r.expect(shell("echo $VAR"), 0, "kept\n")
	}
	r.eventually("nothing left but the shell", func() bool { return len(descendants(r.guest.Process.Pid)) == 1 })
}

func TestStuckShellIsRestarted(t *testing.T) {
	r := newRig(t)
	r.expect(shell("cd /usr; export A=1"), 0, "")
	spec := shell("trap '' INT; while :; do :; done")
	spec.Timeout = 200 * time.Millisecond
	if st, _, _ := r.run(spec); !st.TimedOut || st.Signal != "SIGKILL" || !strings.Contains(st.Cause, "killed") {
		t.Errorf("%+v", st)
	}
	if st := r.expect(shell("pwd; echo $A"), 0, "/usr\n1\n"); !strings.Contains(st.Cause, "anew") {
		t.Errorf("cause %q", st.Cause)
	}
}

func TestShellQueueAndCancel(t *testing.T) {
	r := newRig(t)
	first := r.start(shell("until [ -e go ]; do sleep 0.01; done; echo 1"))
	second := r.start(shell("touch ran2"))
	third := r.start(shell("echo 3; ls"))
	if err := r.link.Execs().Signal(r.ctx(), second, 2); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(second); st.Signal != "SIGINT" || st.ExitCode != nil || st.Cause == "" {
		t.Errorf("%+v", st)
	}
	r.expect(process("touch", "go"), 0, "")
	r.wait(first)
	r.wait(third)
	if out := r.output(third, sandbox.Stdout); out != "3\ngo\n" {
		t.Errorf("third %q", out)
	}
	other := shell("echo other")
	other.Interpreter = "two"
	r.expect(other, 0, "other\n")
}

func TestShellInterrupt(t *testing.T) {
	r := newRig(t)
	exec := r.start(shell("echo in; while :; do :; done; echo no"))
	r.eventually("the loop has begun", func() bool { return r.output(exec, sandbox.Stdout) == "in\n" })
	if err := r.link.Execs().Signal(r.ctx(), exec, 2); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(exec); code(st) != 130 {
		t.Errorf("%+v", st)
	}
	r.expect(shell("echo alive"), 0, "alive\n")
}

// What a user sets in the shell stays his, and does not reach into how commands are run.
func TestShellKeepsItsDriverToItself(t *testing.T) {
	r := newRig(t)
	_, others, _ := r.run(process("ls", "/proc/self/fd")) // what the test itself has inherited is there too
	_, ours, _ := r.run(shell("ls /proc/self/fd"))
	for fd := range strings.FieldsSeq(ours) {
		if !slices.Contains(strings.Fields(others), fd) {
			t.Errorf("a program of the shell gets descriptor %s", fd)
		}
	}
	r.expect(shell("echo '"+strings.Repeat("long ", 20000)+"' | wc -c"), 0, "100001\n")
	r.expect(shell("echo $0 | wc -l"), 0, "1\n") // a shorter text than the one before
	r.expect(shell("set -o noclobber; set -x; IFS=:; trap 'echo from the trap' DEBUG"), 0, "")
	st, out, errOut := r.run(shell("echo one"))
	if code(st) != 0 || out != "from the trap\none\n" && out != "one\n" || strings.Contains(errOut, "perdure") {
		t.Errorf("code %d, stdout %q, stderr %q", code(st), out, errOut)
	}
	r.expect(shell("trap - DEBUG; set +x; export MULTI=$'a\\nb:c'; f() { return 9; }; export -f f"), 0, "")
	r.expect(shell("exec >/dev/null; echo lost"), 0, "")
	r.expect(shell("echo back; f"), 9, "back\n")
	r.expect(shell("exit 0"), 0, "")
	r.expect(shell("echo \"$MULTI\"; f"), 127, "a\nb:c\n") // functions go with the shell
}

// C2: copies of a shell draw different numbers, from their first command on. Without a restore nothing is changed.
func TestC2_ShellReseeds(t *testing.T) {
	r := newRig(t)
	const draw = "echo $RANDOM $RANDOM $RANDOM"
	_, want, _ := r.run(shell("RANDOM=5; " + draw))
	r.expect(shell("RANDOM=5"), 0, "")
	r.expect(shell(draw), 0, want)
	r.expect(shell("RANDOM=5"), 0, "")
	seen := map[string]bool{want: true}
	for range 2 {
		rep, err := r.link.Restored(r.ctx(), link.RestoreInfo{Entropy: bytes.Repeat([]byte{7}, 32)})
		if err != nil || !strings.Contains(strings.Join(rep.Reseeded, ";"), `bash "main"`) {
			t.Fatalf("%+v %v", rep.Reseeded, err)
		}
		_, got, _ := r.run(shell(draw))
		if seen[got] {
			t.Errorf("%q was drawn before", got)
		}
		seen[got] = true
	}
}

// The variables of a shell that is killed from outside are those after its last command, however that came to its end.
func TestKilledShellKeepsItsExports(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.expect(shell(fmt.Sprintf("export N=%d", i)), 0, "")
		st, _, _ := r.run(shell("kill -9 $$"))
		if st.Signal != "SIGKILL" {
			t.Errorf("%+v", st)
		}
		r.expect(shell("echo $N"), 0, fmt.Sprintln(i))
	}
}
