package link_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

func TestX1_TimeoutKillsGroup(t *testing.T) {
	r := newRig(t)
	for name, script := range map[string]string{
		"children":   "sleep 90 & sleep 91 & wait",
		"moved":      "setsid sh -c 'sleep 92 & wait' & wait",
		"daemon":     "(setsid sh -c 'sleep 93' </dev/null >/dev/null 2>&1 &) ; sleep 94",
		"term-proof": "trap '' TERM INT; while :; do sleep 0.1; done",
		"pipe held":  "sleep 95 | sleep 96",
	} {
		spec := process("sh", "-c", script)
		spec.Timeout = 300 * time.Millisecond
		began := time.Now()
		st, _, _ := r.run(spec)
		took := time.Since(began)
		if !st.TimedOut || st.Signal != "SIGKILL" || st.ExitCode != nil || took < spec.Timeout || took > 2*time.Second {
			t.Errorf("%s: %s, %+v", name, took, st)
		}
		r.eventually(name+": nothing left", func() bool { return len(descendants(r.guest.Process.Pid)) == 0 })
	}
}

func TestX2_BackgroundStaysListed(t *testing.T) {
	r := newRig(t)
	spec := process("sh", "-c", "echo up; exec sleep 1000")
	spec.Background, spec.Label = true, "server"
	exec := r.start(spec)
	r.eventually("its output", func() bool { return r.output(exec, sandbox.Stdout) == "up\n" })
	list, err := r.link.Execs().List(r.ctx())
	if err != nil || len(list) != 1 || list[0].ID != exec || list[0].Spec.Label != "server" || list[0].State != sandbox.ExecRunning {
		t.Fatalf("%+v %v", list, err)
	}
	r.eventually("it is among the processes", func() bool { // it says up before it becomes sleep
		procs, err := r.link.Files().Processes(r.ctx())
		return err == nil && slices.ContainsFunc(procs, func(p sandbox.Process) bool {
			return p.PID == list[0].PID && p.Exec == exec && p.Args[0] == "sleep" && p.RSS > 0
		})
	})
	if err := r.link.Execs().Signal(r.ctx(), exec, 9); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(exec); st.Signal != "SIGKILL" {
		t.Errorf("%+v", st)
	}
}

func TestX2_ProcessesKnowTheirCommand(t *testing.T) {
	r := newRig(t)
	first := r.start(shell("sleep 200 & (setsid sleep 201 &) ; echo"))
	r.wait(first)
	second := r.start(shell("(exec -a x sleep 202) & ( while :; do sleep 0.05; done ) & wait"))
	r.eventually("attribution", func() bool {
		procs, err := r.link.Files().Processes(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		owner := map[string]string{}
		for _, p := range procs {
			owner[p.Args[len(p.Args)-1]] = string(p.Exec)
		}
		return owner["200"] == string(first) && owner["201"] == string(first) && owner["202"] == string(second)
	})
	// Ending the second command leaves the children of the first alone.
	if err := r.link.Execs().Signal(r.ctx(), second, 9); err != nil {
		t.Fatal(err)
	}
	r.wait(second)
	r.eventually("only the first's and the shell are left", func() bool { return len(descendants(r.guest.Process.Pid)) == 3 })
}

func TestX3_ExitCodesAreReal(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			spec := process("sh", "-c", "exit "+strconv.Itoa(i))
			spec.ID = id.Exec("exit-" + strconv.Itoa(i))
			if _, err := r.link.Execs().Start(r.ctx(), spec); err != nil {
				t.Error(err)
				return
			}
			if st, err := r.link.Execs().Wait(r.ctx(), spec.ID); err != nil || code(st) != i {
				t.Errorf("%d: %+v %v", i, st, err)
			}
		})
	}
	wg.Wait()
}

func TestX4_OneStuckCommandBlocksNoOther(t *testing.T) {
	r := newRig(t)
	r.start(process("sh", "-c", "kill -STOP $$"))
	r.start(shell("sleep 1000"))
	full := process("sleep", "1000")
	full.Stdin = true
	exec := r.start(full)
	go r.link.Execs().Stdin(r.ctx(), exec, 0, make([]byte, 3<<20), false) // waits for room until the test ends
	if st, out, _ := r.run(process("echo", "free")); code(st) != 0 || out != "free\n" {
		t.Errorf("%+v %q", st, out)
	}
	other := shell("echo free")
	other.Interpreter = "other"
	r.expect(other, 0, "free\n")
}

func TestX5_HungCommandsAndForkStorm(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() { r.start(process("sleep", "1000")) })
	}
	wg.Wait()
	storm := process("sh", "-c", "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; wait")
	storm.Timeout = 2 * time.Second
	exec := r.start(storm)
	if st, out, _ := r.run(process("echo", "answer")); code(st) != 0 || out != "answer\n" {
		t.Errorf("%+v", st)
	}
	if st := r.wait(exec); !st.TimedOut {
		t.Errorf("%+v", st)
	}
	r.eventually("the storm is over", func() bool { return len(descendants(r.guest.Process.Pid)) == 200 })
	r.expect(shell("echo answer"), 0, "answer\n")
}

func TestX6_100MBOfOutput(t *testing.T) {
	r := newRig(t)
	const size = 100 << 20
	exec := r.start(process("python3", "-S", "-c", patternProgram(size)))
	if st := r.wait(exec); code(st) != 0 || st.StdoutSize != size {
		t.Fatalf("%+v", st)
	}
	rd, err := r.link.Execs().Output(r.ctx(), exec, sandbox.Stdout, 90<<20, true) // resumed at an offset
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	data, err := io.ReadAll(rd)
	if err != nil || !bytes.Equal(data, pattern(size)[90<<20:]) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestX6_OutputWithTerminal(t *testing.T) {
	r := newRig(t)
	const size = 20 << 20
	spec := process("sh", "-c", "stty raw; exec python3 -S -c \"$P\"")
	spec.Env = []string{"P=" + patternProgram(size)}
	spec.TTY = &sandbox.TerminalSize{Rows: 24, Cols: 80}
	st, out, _ := r.run(spec)
	if code(st) != 0 || out != string(pattern(size)) {
		t.Errorf("%+v, %d bytes", st, len(out))
	}
}

func TestX7_ZombiesAreReaped(t *testing.T) {
	r := newRig(t)
	r.expect(process("sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.05 &) ; done; cat <<E\nhere\nE\nexec 0<&-; cat; echo $?"), 0, "here\n1\n")
	r.eventually("no zombies", func() bool {
		procs, err := r.link.Files().Processes(r.ctx())
		return err == nil && len(procs) == 0
	})
}

func TestBackgroundChildrenKeepTheStream(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	exec := r.start(process("sh", "-c", "(until [ -e go ]; do sleep 0.02; done; echo later) & echo now"))
	if st := r.wait(exec); code(st) != 0 || r.output(exec, sandbox.Stdout) != "now\n" || time.Since(began) > 5*time.Second {
		t.Errorf("%+v", st)
	}
	r.run(process("touch", "go"))
	r.eventually("later output", func() bool { return r.output(exec, sandbox.Stdout) == "now\nlater\n" })
}

func TestConstantWriterDoesNotHoldUpTheEnd(t *testing.T) {
	r := newRig(t)
	exec := r.start(process("sh", "-c", "(while :; do echo x; done) & exit 4"))
	if st := r.wait(exec); code(st) != 4 {
		t.Errorf("%+v", st)
	}
	if err := r.link.Execs().Signal(r.ctx(), exec, 9); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is gone", func() bool { return len(descendants(r.guest.Process.Pid)) == 0 })
}

func TestManyShellsAtOnce(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 10 {
				spec := shell(fmt.Sprintf("echo %d-%d", i, n))
				spec.Interpreter = "s" + strconv.Itoa(i)
				if _, out, _ := r.run(spec); strings.TrimSpace(out) != fmt.Sprintf("%d-%d", i, n) {
					t.Errorf("%q", out)
				}
			}
		})
	}
	wg.Wait()
}

// All that a process wrote is there when its end is known.
func TestX6_EndFollowsOutput(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if st, _, _ := r.run(process("head", "-c", "60000", "/dev/zero")); st.StdoutSize != 60000 || code(st) != 0 {
					t.Errorf("%+v", st)
				}
			}
		})
	}
	wg.Wait()
}
