package demo

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// build makes the three binaries, as `make build` does, and returns the path of perdure.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "perdure.dev/perdure/cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return filepath.Join(dir, "perdure")
}

// places gives a run a temporary directory of its own, to look into afterwards. It is short, since sockets lie below it.
func places(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pdt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			t.Errorf("the demo left %v in its temporary directory (%v)", entries, err)
		}
		if p := processesOf(dir); len(p) > 0 {
			t.Errorf("the demo left processes: %+v", p)
		}
		os.RemoveAll(dir)
	})
	return dir
}

func command(t *testing.T, perdure, tmp string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.CommandContext(t.Context(), perdure, append([]string{"demo"}, args...)...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd, stdout, stderr
}

func TestDemoHoldsAndLeavesNothing(t *testing.T) {
	perdure := build(t)
	for _, driver := range []string{gvisor, process} {
		t.Run(driver, func(t *testing.T) {
			cmd, stdout, stderr := command(t, perdure, places(t), "--json", "--driver", driver)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
			}
			var f Figures
			if err := json.Unmarshal(stdout.Bytes(), &f); err != nil {
				t.Fatalf("%v: %s", err, stdout)
			}
			if !f.OK || len(f.Claims) < 10 || f.Model != "scripted" {
				t.Fatalf("%+v", f)
			}
			if f.Driver == gvisor && (len(f.Ways) != 3 || len(f.Skipped) != 0) || f.Driver == process && len(f.Skipped) == 0 {
				t.Fatalf("%+v", f)
			}
			t.Logf("%.0f ms", f.TotalMS)
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		tmp := places(t)
		cmd, stdout, stderr := command(t, perdure, tmp, "--driver", process)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// In the middle of the third part, while no daemon may be there.
		deadline := time.Now().Add(time.Minute)
		for findFile(tmp, "runs.log") == "" {
			if time.Now().After(deadline) {
				t.Fatalf("it never came to its third part\n%s\n%s", stdout, stderr)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code tells
		if code := cmd.ProcessState.ExitCode(); code != 130 {
			t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
}

func TestClaimThatDoesNotHoldEndsTheStory(t *testing.T) {
	s := &story{teller: teller{quiet: true}}
	if err := s.claim(false, "water is dry", "%s", "it is wet"); err == nil || err.Error() != "it does not hold that water is dry: it is wet" {
		t.Fatalf("%v", err)
	}
	if len(s.fig.Claims) != 0 {
		t.Fatal("it counts as shown")
	}
}

func TestProcessesOfFindsByArgumentsEnvironmentAndDirectory(t *testing.T) {
	dir := t.TempDir()
	for what, cmd := range map[string]*exec.Cmd{
		"arguments":   exec.Command("sh", "-c", "read x", dir),
		"environment": {Path: "/bin/sh", Args: []string{"sh", "-c", "read x"}, Env: []string{"THERE=" + dir}},
		"directory":   {Path: "/bin/sh", Args: []string{"sh", "-c", "read x"}, Dir: dir},
	} {
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := processesOf(dir); len(got) != 1 || got[0].pid != cmd.Process.Pid {
			t.Errorf("by %s: found %+v, want %d", what, got, cmd.Process.Pid)
		}
		in.Close()
		_ = cmd.Wait() // read fails at the end of its input
		if got := processesOf(dir); len(got) != 0 {
			t.Errorf("by %s: found %+v after its end", what, got)
		}
	}
}
