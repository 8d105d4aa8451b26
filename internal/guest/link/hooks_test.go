package link_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/sandbox"
)

// hook writes a hook of an occasion.
func (r *rig) hook(occasion, name, script string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, "hooks", occasion+".d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) hooks(each, all time.Duration, env ...string) []sandbox.HookRun {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	runs, err := r.link.Hooks(ctx, sandbox.Hooks{Occasion: sandbox.HookPreSuspend, Env: env, Each: each, All: all})
	if err != nil {
		r.t.Fatal(err)
	}
	return runs
}

func TestI4_HooksRunInOrderAndSayWhatTheyDid(t *testing.T) {
	r := newRig(t)
	if runs := r.hooks(time.Second, time.Second); len(runs) != 0 {
		t.Errorf("without a directory: %+v", runs)
	}
	log := filepath.Join(r.dir, "log")
	say := `echo "$0 $PERDURE_HOOK $WHY" | sed 's|.*/||' >> ` + log
	r.hook(sandbox.HookPreSuspend, "20-second", say+"; echo out; echo err >&2; exit 3")
	r.hook(sandbox.HookPreSuspend, "10-first", say)
	r.hook(sandbox.HookPreSuspend, "30.ignored", say)
	r.hook(sandbox.HookPreSuspend, "40-not-executable", say)
	r.hook(sandbox.HookPreSuspend, "60-killed", "kill -9 $$")
	r.hook(sandbox.HookPostFork, "10-other", say)
	dir := filepath.Join(r.dir, "hooks", sandbox.HookPreSuspend+".d")
	for _, err := range []error{
		os.Chmod(filepath.Join(dir, "40-not-executable"), 0o644),
		os.Mkdir(filepath.Join(dir, "50-directory"), 0o755),
		os.Symlink("/nowhere", filepath.Join(dir, "51-dangling")),
		os.Symlink("52-loop", filepath.Join(dir, "52-loop")),
		os.WriteFile(filepath.Join(dir, "70-no-interpreter"), []byte("#!/nowhere\n"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	runs := r.hooks(10*time.Second, 20*time.Second, "WHY=because")
	var names []string
	for _, x := range runs {
		names = append(names, x.Name)
	}
	if got := strings.Join(names, " "); got != "10-first 20-second 60-killed 70-no-interpreter" {
		t.Fatalf("ran %s", got)
	}
	if !runs[0].OK() || runs[1].OK() || runs[1].ExitCode == nil || *runs[1].ExitCode != 3 || runs[1].Output != "out\nerr\n" {
		t.Errorf("%+v", runs)
	}
	if runs[2].ExitCode != nil || !strings.Contains(runs[2].Cause, "SIGKILL") || runs[3].ExitCode != nil || runs[3].Cause == "" {
		t.Errorf("%+v", runs)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != "10-first pre-suspend because\n20-second pre-suspend because\n" {
		t.Errorf("log: %q", data)
	}
}

// TestI4_HostileHooksEndInTime has hooks that do all they can to go on.
func TestI4_HostileHooksEndInTime(t *testing.T) {
	r := newRig(t)
	pids := filepath.Join(r.dir, "pids")
	note := "echo $$ >> " + pids + "; "
	r.hook(sandbox.HookPreSuspend, "1-deaf", "trap '' TERM INT HUP QUIT; "+note+"while :; do sleep 1; done")
	r.hook(sandbox.HookPreSuspend, "2-forks", "trap '' TERM; "+note+"f() { setsid sh -c 'echo $$ >> "+pids+"; sleep 1000' & sleep 1000 & }; for i in 1 2 3 4 5; do f; done; wait")
	r.hook(sandbox.HookPreSuspend, "3-floods", note+"yes")
	r.hook(sandbox.HookPreSuspend, "4-closes", note+"exec 0<&- 1>&- 2>&-; sleep 1000")
	r.hook(sandbox.HookPreSuspend, "5-leaves", "sleep 1000 & echo $! >> "+pids+"; echo left")
	r.hook(sandbox.HookPreSuspend, "6-fine", "echo fine")
	began := time.Now()
	runs := r.hooks(time.Second, 30*time.Second)
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("they took %s", took)
	}
	if len(runs) != 6 {
		t.Fatalf("%+v", runs)
	}
	for _, x := range runs[:4] {
		if x.ExitCode != nil || !strings.Contains(x.Cause, "killed") {
			t.Errorf("%s: %+v", x.Name, x)
		}
	}
	if n := len(runs[2].Output); n < 1000 || n > 10_000 {
		t.Errorf("%d bytes are kept of a flood", n)
	}
	if !runs[4].OK() || runs[4].Output != "left\n" || !runs[5].OK() || runs[5].Output != "fine\n" {
		t.Errorf("%+v", runs[4:])
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(data))
	for _, pid := range list[:len(list)-1] { // the last one was left in the background by a hook that ended
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %s lives on: %s", pid, stat)
		}
	}
	// The time for all is over before the last ones.
	runs = r.hooks(time.Second, 1500*time.Millisecond)
	if last := runs[len(runs)-1]; last.ExitCode != nil || !strings.Contains(last.Cause, "not run") {
		t.Errorf("%+v", last)
	}
}
