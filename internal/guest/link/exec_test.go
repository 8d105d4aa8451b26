package link_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

func TestProcess(t *testing.T) {
	r := newRig(t, "GREETING=hello")
	st, out, errOut := r.run(process("sh", "-c", "echo $GREETING $HOME; pwd; echo oops >&2; exit 3"))
	if code(st) != 3 || st.State != sandbox.ExecExited || st.Signal != "" {
		t.Errorf("status %+v", st)
	}
	home := r.dir + "/home"
	if want := "hello " + home + "\n" + home + "\n"; out != want || errOut != "oops\n" {
		t.Errorf("stdout %q, want %q; stderr %q", out, want, errOut)
	}
	if st.StdoutSize != int64(len(out)) || st.StderrSize != 5 || st.PID == 0 || st.EndedAt.IsZero() {
		t.Errorf("status %+v", st)
	}
}

func TestCommandNotFound(t *testing.T) {
	r := newRig(t)
	spec := process("no-such-command")
	spec.ID = "nf"
	_, err := r.link.Execs().Start(r.ctx(), spec)
	if errdefs.CodeOf(err) != "command_not_found" {
		t.Errorf("error %v", err)
	}
	st := r.wait("nf")
	if code(st) != 127 || st.Cause == "" {
		t.Errorf("status %+v", st)
	}
}

// As a shell has it: 127 for what is not there, 126 for what is there and cannot be run.
func TestCommandNotExecutable(t *testing.T) {
	r := newRig(t)
	r.expect(shell("echo 'echo hi' >plain; mkdir -p bin dir; cp plain bin/onpath; printf '\\x7fELFnonsense' >wrong; chmod +x wrong"), 0, "")
	for i, argv := range []string{"./plain", "./dir", "onpath", "./wrong"} {
		spec := process(argv)
		spec.ID, spec.Env = id.Exec(fmt.Sprint("x", i)), []string{"PATH=" + r.dir + "/home/bin:" + os.Getenv("PATH")}
		if _, err := r.link.Execs().Start(r.ctx(), spec); errdefs.CodeOf(err) != "command_not_executable" {
			t.Errorf("%s: %v", argv, err)
		}
		if st := r.wait(spec.ID); code(st) != 126 || !strings.Contains(st.Cause, "cannot be run") {
			t.Errorf("%s: %+v", argv, st)
		}
	}
}

func TestIdempotentStart(t *testing.T) {
	r := newRig(t)
	spec := shell("echo once >> log")
	spec.ID = "one"
	for range 3 {
		r.start(spec)
		r.wait("one")
	}
	if _, out, _ := r.run(shell("cat log")); out != "once\n" {
		t.Errorf("log %q", out)
	}
}

func TestInvalidSpecs(t *testing.T) {
	r := newRig(t)
	for name, spec := range map[string]sandbox.ExecSpec{
		"no argv":    {ID: "a", Kind: sandbox.ExecProcess},
		"bad kind":   {ID: "a", Kind: "perl"},
		"bad id":     {ID: "../x", Kind: sandbox.ExecShell, Code: "true"},
		"nul":        {ID: "a", Kind: sandbox.ExecShell, Code: "a\x00b"},
		"bad interp": {ID: "a", Kind: sandbox.ExecShell, Code: "true", Interpreter: "../x"},
		"shell tty":  {ID: "a", Kind: sandbox.ExecShell, Code: "true", TTY: &sandbox.TerminalSize{}},
	} {
		if _, err := r.link.Execs().Start(r.ctx(), spec); errdefs.CodeOf(err) != "exec_invalid" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.link.Execs().Status(r.ctx(), "nobody"); errdefs.CodeOf(err) != "exec_not_found" {
		t.Errorf("status of nobody: %v", err)
	}
}

func TestStdinAndTerminal(t *testing.T) {
	r := newRig(t)
	spec := process("cat")
	spec.Stdin = true
	exec := r.start(spec)
	e := r.link.Execs()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(e.Stdin(r.ctx(), exec, 0, []byte("hello "), false))
	check(e.Stdin(r.ctx(), exec, 0, []byte("hello world"), false))
	if err := e.Stdin(r.ctx(), exec, 50, []byte("x"), false); errdefs.CodeOf(err) != "stdin_gap" {
		t.Errorf("gap: %v", err)
	}
	check(e.Stdin(r.ctx(), exec, 6, []byte("world"), true))
	if st := r.wait(exec); code(st) != 0 || r.output(exec, sandbox.Stdout) != "hello world" {
		t.Errorf("%+v %q", st, r.output(exec, sandbox.Stdout))
	}

	tty := process("sh", "-c", "stty size; read x; stty size; echo got $x; tty")
	tty.TTY, tty.Stdin = &sandbox.TerminalSize{Rows: 33, Cols: 77}, true
	exec = r.start(tty)
	r.eventually("the terminal's size", func() bool { return strings.Contains(r.output(exec, sandbox.Stdout), "33 77") })
	check(e.Resize(r.ctx(), exec, sandbox.TerminalSize{Rows: 11, Cols: 22}))
	check(e.Stdin(r.ctx(), exec, 0, []byte("yes\n"), false))
	st := r.wait(exec)
	out := r.output(exec, sandbox.Stdout)
	if code(st) != 0 || !strings.Contains(out, "11 22") || !strings.Contains(out, "got yes") || !strings.Contains(out, "/dev/pts/") {
		t.Errorf("%+v %q", st, out)
	}
}

func TestSignalGivesSignal(t *testing.T) {
	r := newRig(t)
	exec := r.start(process("sh", "-c", "sleep 100; echo no"))
	if err := r.link.Execs().Signal(r.ctx(), exec, 15); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(exec); st.Signal != "SIGTERM" || st.ExitCode != nil || st.TimedOut {
		t.Errorf("%+v", st)
	}
}

func TestDeadSandbox(t *testing.T) {
	r := newRig(t)
	exec := r.start(process("sleep", "100"))
	r.killGuest()
	r.link.Dead("somebody pulled the plug")
	st := r.wait(exec)
	if st.State != sandbox.ExecLost || st.Cause != "somebody pulled the plug" || st.ExitCode != nil {
		t.Errorf("%+v", st)
	}
	if _, err := r.link.Execs().Start(r.ctx(), process("true")); err == nil {
		t.Error("a start without an id")
	}
	spec := process("true")
	spec.ID = "late"
	if _, err := r.link.Execs().Start(r.ctx(), spec); errdefs.CodeOf(err) != "sandbox_dead" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(r.ctx())
	cancel()
	if err := r.link.Connected(ctx); errdefs.CodeOf(err) != "sandbox_dead" || errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
