package service_test

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/process"
)

func TestCheckpointRollbackForkSuspend(t *testing.T) {
	w := newWorld(t)
	w.create("one", "")
	w.want(w.python("one", "x = 41\nx + 1"), "42")
	w.sh("one", "echo before > /root/f; echo keep > /root/g")
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "one", api.CreateCheckpoint{Message: "loaded"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("checkpoint: pause %.1f ms, memory %d, files %d", ck.PauseMS, ck.MemoryBytes, ck.FileBytes)
	w.sh("one", "echo after > /root/f; rm /root/g; echo new > /root/h")
	w.python("one", "x = 99")

	forks, err := w.svc.ForkSession(w.ctx(), "one", api.ForkSession{Checkpoint: "loaded", Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range forks.Data {
		w.want(f.Name, fmt.Sprintf("one-%d", i+1))
		w.want(w.python(f.Name, "x"), "41")
		w.want(w.sh(f.Name, "cat /root/f /root/g; hostname; ls /root/h 2>/dev/null || echo none"), fmt.Sprintf("before\nkeep\none-%d\nnone", i+1))
	}
	w.sh("one-1", "echo fork > /root/f")
	d, err := w.svc.Diff(w.ctx(), "one", "one-1")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range d.Files {
		if strings.HasPrefix(f.Path, "/root/") && !strings.Contains(f.Path, "cache") {
			paths = append(paths, f.Path+" "+f.Change)
		}
	}
	w.want(strings.Join(paths, ","), "/root/f changed,/root/h removed,/root/g added")

	dry, err := w.svc.RollbackSession(w.ctx(), "one", api.RollbackSession{Checkpoint: ck.ID, DryRun: true})
	if err != nil || len(dry.Files) == 0 {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	w.want(w.python("one", "x"), "99")
	back, err := w.svc.RollbackSession(w.ctx(), "one", api.RollbackSession{Checkpoint: "loaded"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("rollback: %+v", *back.ResumeReport)
	w.want(w.python("one", "x"), "41")
	w.want(w.sh("one", "cat /root/f /root/g; ls /root/h 2>/dev/null || echo none"), "before\nkeep\nnone")
	if _, err := w.svc.UndoSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.want(w.python("one", "x"), "99")
	w.want(w.sh("one", "cat /root/f /root/h"), "after\nnew")

	if _, err := w.svc.SuspendSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.state("one", "suspended")
	s, err := w.svc.ResumeSession(w.ctx(), "one")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("resume: %+v", *s.ResumeReport)
	w.want(w.python("one", "x"), "99")
	w.want(w.sh("one", "cat /root/f /root/h"), "after\nnew")
	v, err := w.svc.VerifySession(w.ctx(), "one")
	if err != nil || !v.OK {
		t.Fatalf("verify: %+v, %v", v, err)
	}
}

func TestS3_RestartedServiceReadoptsSandboxesAndCommands(t *testing.T) {
	w := newWorld(t)
	w.create("one", "")
	w.python("one", "x = 7")
	x := w.start("one", api.StartExec{ID: "slow", Argv: []string{"bash", "-c", "echo start; echo slow >> /root/ran; read < /root/go; echo end"}})
	w.sh("one", "mkfifo /root/go 2>/dev/null || true")
	_ = x
	w.restart()
	w.state("one", "running")
	w.want(w.python("one", "x"), "7")
}

func TestStopKeepsFilesOnly(t *testing.T) {
	w := newWorld(t)
	w.create("one", "")
	w.sh("one", "echo kept > /root/f")
	w.python("one", "x = 1")
	if _, err := w.svc.StopSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.state("one", "stopped")
	w.want(w.sh("one", "cat /root/f"), "kept") // wakes it
	w.want(w.python("one", "'x' in globals()"), "False")
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t)
	w.create("one", "")
	w.python("one", "x = 1")
	if _, err := w.svc.PauseSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.state("one", "paused")
	if _, err := w.svc.ResumeSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.want(w.python("one", "x"), "1")
}

// TestDriverWithoutMemory goes through the same story on files alone.
func TestDriverWithoutMemory(t *testing.T) {
	w := newWorld(t)
	w.create("one", "process")
	w.python("one", "x = 1")
	w.sh("one", "echo before > f; echo gone > g")
	if _, err := w.svc.CreateCheckpoint(w.ctx(), "one", api.CreateCheckpoint{Message: "first"}); err != nil {
		t.Fatal(err)
	}
	w.sh("one", "echo after > f; rm g")
	forks, err := w.svc.ForkSession(w.ctx(), "one", api.ForkSession{}) // of the present state
	if err != nil {
		t.Fatal(err)
	}
	w.want(w.sh(forks.Data[0].Name, "cat f; ls g 2>/dev/null || echo none"), "after\nnone")
	plan, err := w.svc.RollbackSession(w.ctx(), "one", api.RollbackSession{Checkpoint: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if plan.ProcessesBack || strings.Join(plan.ResumeReport.Layers, " ") != "files transcript" {
		t.Fatalf("plan %+v", plan)
	}
	w.want(w.sh("one", "cat f g"), "before\ngone")
	w.want(w.python("one", "'x' in globals()"), "False")
	if err := w.svc.WriteFile(w.ctx(), "one", "~/dir/h", 0, strings.NewReader("home")); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("one", "cat dir/h"), "home")
	if _, err := w.svc.UndoSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("one", "cat f; ls g dir 2>/dev/null || echo none"), "after\nnone")
}

// An artifact belongs to its session and to the forks that remember it, and to nobody else.
func TestArtifactIsReadByItsSessionAndItsForks(t *testing.T) {
	w := newWorld(t)
	a := w.create("a", process.Name)
	w.create("other", process.Name)
	name := id.NewArtifact()
	dir := filepath.Join(w.dir, "sessions", a.ID, "artifacts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.put(filepath.Join(dir, string(name)), "whole")
	if _, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Name: "kid"}); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"a", "kid"} {
		f, err := w.svc.Artifact(w.ctx(), ref, name)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		b, err := io.ReadAll(f)
		if err != nil || string(b) != "whole" || f.Close() != nil {
			t.Errorf("%s: %q, %v", ref, b, err)
		}
	}
	if _, err := w.svc.Artifact(w.ctx(), "other", name); errdefs.CodeOf(err) != "artifact_not_found" {
		t.Errorf("another session: %v", err)
	}
}

// TestRollbackKeepsTheCheckpointItGoesTo goes back to the oldest automatic checkpoint that is kept, while the one that is taken on the way
// is one too many.
func TestRollbackKeepsTheCheckpointItGoesTo(t *testing.T) {
	w := newWorld(t)
	w.create("a", gvisor.Name)
	var first string
	for _, text := range []string{"one", "two", "three", "four"} {
		w.sh("a", "echo "+text+" > /root/file")
		s, err := w.svc.SuspendSession(w.ctx(), "a")
		if err != nil {
			t.Fatal(err)
		}
		first = cmp.Or(first, s.Workspace.CheckpointID)
	}
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: first}); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat /root/file"), "one")
}
