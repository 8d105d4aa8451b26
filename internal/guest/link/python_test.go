package link_test

import (
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/sandbox"
)

func TestPythonPersists(t *testing.T) {
	r := newRig(t)
	r.expect(python("import os, subprocess, sys\nx = 41\ndef f():\n    return x + 1"), 0, "")
	r.expect(python("f()"), 0, "42\n")
	r.expect(python("print('a')\nsubprocess.run(['echo', 'b'])\nos.system('echo c')\nprint('d'); 'e'"), 0, "a\nb\nc\nd\n'e'\n")
	r.expect(python("x = None\nx"), 0, "")
	r.expect(python("sys.exit(3)"), 3, "")
	r.expect(python("__name__"), 0, "'__main__'\n")
	r.expect(python("import pickle\nclass C: pass\ntype(pickle.loads(pickle.dumps(C()))).__name__"), 0, "'C'\n")
	r.expect(python("input()"), 1, "")
}

func TestPythonTraceback(t *testing.T) {
	r := newRig(t)
	st, out, errOut := r.run(python("def g():\n    return 1 / 0\ng()"))
	if code(st) != 1 || out != "" || !strings.Contains(errOut, "ZeroDivisionError") || !strings.Contains(errOut, "return 1 / 0") ||
		strings.Contains(errOut, "driver") || strings.Contains(errOut, "_drive") {
		t.Errorf("%+v %q %q", st, out, errOut)
	}
	_, _, errOut = r.run(python("x = ("))
	if !strings.Contains(errOut, "SyntaxError") || strings.Contains(errOut, "driver.py") {
		t.Errorf("%q", errOut)
	}
}

func TestPythonStreamsAreSeparate(t *testing.T) {
	r := newRig(t)
	first := r.start(python(`
import threading, subprocess, time, os, logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
def later():
    while not os.path.exists("go"): time.sleep(0.01)
    print("from the thread", flush=True)
    open("done", "w").close()
threading.Thread(target=later).start()
p = subprocess.Popen("until [ -e go ]; do sleep 0.01; done; echo from the child; touch done2", shell=True)
print("first")
logging.info("log 1")`))
	if st := r.wait(first); code(st) != 0 {
		t.Fatalf("%+v %s", st, r.output(first, sandbox.Stderr))
	}
	_, out, errOut := r.run(python("open('go', 'w').close()\nwhile not (os.path.exists('done') and os.path.exists('done2')): time.sleep(0.01)\nprint('second')\nlogging.info('log 2')"))
	if out != "second\n" || errOut != "log 2\n" {
		t.Errorf("%q %q", out, errOut)
	}
	r.eventually("late output", func() bool {
		o := r.output(first, sandbox.Stdout)
		return strings.HasPrefix(o, "first\n") && strings.Contains(o, "from the thread\n") && strings.Contains(o, "from the child\n")
	})
}

func TestPythonInterruptAndTimeout(t *testing.T) {
	r := newRig(t)
	r.expect(python("v = 5"), 0, "")
	for _, text := range []string{"while True: pass", "import time; time.sleep(100)", "import subprocess; subprocess.run(['sleep', '100'])"} {
		spec := python(text)
		spec.Timeout = 300 * time.Millisecond
		began := time.Now()
		st, _, _ := r.run(spec)
		if took := time.Since(began); took > 3*time.Second || !st.TimedOut || st.Signal != "SIGKILL" {
			t.Errorf("%q: %s %+v", text, took, st)
		}
		r.expect(python("v"), 0, "5\n")
	}
	exec := r.start(python("print('in', flush=True)\nwhile True: pass"))
	r.eventually("begun", func() bool { return r.output(exec, sandbox.Stdout) == "in\n" })
	if err := r.link.Execs().Signal(r.ctx(), exec, 2); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(exec); code(st) != 1 || !strings.Contains(r.output(exec, sandbox.Stderr), "KeyboardInterrupt") {
		t.Errorf("%+v", st)
	}
	r.expect(python("v"), 0, "5\n")
	spec := python("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass")
	spec.Timeout = 200 * time.Millisecond
	if st, _, _ := r.run(spec); !st.TimedOut {
		t.Errorf("%+v", st)
	}
	if st := r.expect(python("'v' in globals()"), 0, "False\n"); !strings.Contains(st.Cause, "anew") {
		t.Errorf("%q", st.Cause)
	}
}

func TestPythonStdin(t *testing.T) {
	r := newRig(t)
	spec := python("a = input()\nimport sys\nprint(a, sys.stdin.read())")
	spec.Stdin = true
	exec := r.start(spec)
	if err := r.link.Execs().Stdin(r.ctx(), exec, 0, []byte("one\ntwo"), true); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(exec); code(st) != 0 || r.output(exec, sandbox.Stdout) != "one two\n" {
		t.Errorf("%+v %q %q", st, r.output(exec, sandbox.Stdout), r.output(exec, sandbox.Stderr))
	}
}
