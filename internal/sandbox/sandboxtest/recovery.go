package sandboxtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// helperEnv makes the test binary play a daemon that is killed: it starts the sandbox of the spec in that file and hangs.
const helperEnv = "PERDURE_SANDBOXTEST_SPEC"

const helperExec = id.Exec("exec_of_the_dead_daemon")

func helper(t *testing.T, make Make, bin Binaries) bool {
	file := os.Getenv(helperEnv)
	if file == "" {
		return false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var spec sandbox.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	s, err := make(t, bin).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Execs().Start(t.Context(), sandbox.ExecSpec{
		ID: helperExec, Kind: sandbox.ExecProcess, Argv: []string{"/bin/sh", "-c", "cd; echo began; while [ ! -e go ]; do sleep 0.02; done; echo ended"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".ready", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {} // until killed
}

func daemonKilled(t *testing.T, b *bench) {
	file := filepath.Join(b.dir, "spec.json")
	data, err := json.Marshal(b.spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	top, _, _ := strings.Cut(t.Name(), "/")
	daemon := exec.Command(os.Args[0], "-test.run=^"+top+"$")
	daemon.Env = append(os.Environ(), helperEnv+"="+file)
	out, err := os.Create(filepath.Join(b.dir, "daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	daemon.Stdout, daemon.Stderr = out, out
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- daemon.Wait() }()
	b.until("the daemon has a sandbox", func() bool {
		select {
		case err := <-exited:
			log, _ := os.ReadFile(out.Name())
			t.Fatalf("the daemon ended by itself: %v\n%s", err, log)
		default:
		}
		_, err := os.Stat(file + ".ready")
		return err == nil
	})
	if err := daemon.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-exited
	s, err := b.driver.Recover(b.ctx(), b.spec.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	b.keep(s, b.spec)
	if s.ID() != b.spec.ID {
		t.Errorf("recovered %s", s.ID())
	}
	st, err := s.Execs().Status(b.ctx(), helperExec)
	if err != nil || st.State != sandbox.ExecRunning {
		t.Fatalf("the command: %+v, %v", st, err)
	}
	b.ok(s, "touch $HOME/go")
	if r := b.wait(s, helperExec); r.out != "began\nended\n" || code(r.ExecStatus) != 0 {
		t.Errorf("the command: %+v %q", r.ExecStatus, r.out)
	}
}

// killed checks how a sandbox is reported whose process was killed, by a client that knew it and by one that recovers it.
func killed(t *testing.T, b *bench, pid func(sandbox.Status) int) {
	s := b.start()
	running := b.begin(s, execOf("/bin/sh", "-c", "echo said; sleep 1000"))
	ended := b.begin(s, execOf("/bin/sh", "-c", "echo done; exit 4"))
	b.wait(s, ended)
	b.until("it said something", func() bool { return b.output(s, running, sandbox.Stdout) == "said\n" })
	if err := syscall.Kill(pid(b.state(s)), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	st, err := s.Wait(b.ctx())
	if err != nil || st.State != sandbox.Dead || st.Cause == "" {
		t.Errorf("wait: %+v, %v", st, err)
	}
	again, err := b.driver.Recover(b.ctx(), b.spec.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, each := range map[string]sandbox.Sandbox{"known": s, "recovered": again} {
		if st := b.state(each); st.State != sandbox.Dead || st.Cause == "" {
			t.Errorf("%s: %+v", name, st)
		}
		r := b.wait(each, running)
		if r.State != sandbox.ExecLost || r.ExitCode != nil || r.Cause == "" || r.out != "said\n" {
			t.Errorf("%s: the running command: %+v %q", name, r.ExecStatus, r.out)
		}
		if r := b.wait(each, ended); code(r.ExecStatus) != 4 || r.out != "done\n" {
			t.Errorf("%s: the ended command: %+v %q", name, r.ExecStatus, r.out)
		}
		if list, err := each.Execs().List(b.ctx()); err != nil || len(list) != 2 {
			t.Errorf("%s: list: %v, %v", name, list, err)
		}
		if _, err := each.Execs().Start(b.ctx(), execOf("true")); errdefs.CodeOf(err) != "sandbox_dead" {
			t.Errorf("%s: starting a command: %v", name, err)
		}
		if err := each.Pause(b.ctx()); errdefs.CodeOf(err) != "sandbox_dead" {
			t.Errorf("%s: pausing: %v", name, err)
		}
	}
}

func sandboxKilled(t *testing.T, b *bench) {
	killed(t, b, func(st sandbox.Status) int { return st.PIDs[1] })
}

func shimKilled(t *testing.T, b *bench) {
	killed(t, b, func(st sandbox.Status) int { return st.PIDs[0] })
}

func recoverNothing(t *testing.T, b *bench) {
	for _, dir := range []string{b.mkdir("empty"), filepath.Join(b.dir, "missing")} {
		if _, err := b.driver.Recover(b.ctx(), dir); errdefs.CodeOf(err) != "sandbox_not_found" {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func removedStateDir(t *testing.T, b *bench) {
	s := b.start()
	spec := b.spec
	pids := b.state(s).PIDs
	if err := os.RemoveAll(spec.StateDir); err != nil {
		t.Fatal(err)
	}
	b.until("the shim ends", func() bool {
		for _, pid := range pids {
			if _, err := os.Stat(filepath.Join("/proc", itoa(pid))); err == nil {
				return false
			}
		}
		return true
	})
}
