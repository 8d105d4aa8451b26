package service_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/process"
)

func (w *world) put(name, content string) {
	w.t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// doctor returns a check's status and text.
func (w *world) doctor(name string) (status, text string) {
	w.t.Helper()
	r, err := w.svc.Doctor(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range r.Checks {
		if c.Name == name {
			return c.Status, c.Detail + " " + c.Hint
		}
	}
	w.t.Fatalf("doctor has no check %q", name)
	return "", ""
}

// TestH2_DamagedJournalKeepsNobodyFromTheDaemon damages what an operation that was cut leaves, of a session whose sandbox runs on.
func TestH2_DamagedJournalKeepsNobodyFromTheDaemon(t *testing.T) {
	w := newWorld(t)
	a, b := w.create("a", process.Name), w.create("b", process.Name)
	w.close()
	w.put(filepath.Join(w.dir, "sessions", a.ID, "fork-evt_x.json"), `{"children": ["sess_`)
	w.put(filepath.Join(w.dir, "sessions", b.ID, "journal.json"), "\x00\x00\x00")
	w.open() // fails the test if the service does not come up
	for _, name := range []string{"a", "b"} {
		w.want(w.sh(name, "echo alive"), "alive")
	}
	if status, text := w.doctor("journals"); status != "warn" || !strings.Contains(text, ".damaged") {
		t.Errorf("doctor says %s: %s", status, text)
	}
	if _, err := w.svc.SuspendSession(w.ctx(), "b"); err != nil { // which writes a journal
		t.Error(err)
	}
	if _, err := w.svc.ResumeSession(w.ctx(), "b"); err != nil {
		t.Error(err)
	}
}

// TestH2_DamagedJournalOfADeadSandboxLosesNothing: nobody can tell how far the operation got, so nothing that it may have made is deleted.
func TestH2_DamagedJournalOfADeadSandboxLosesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.create("a", gvisor.Name)
	w.create("b", process.Name)
	w.close()
	w.killSandbox(a.Workspace.SandboxID)
	journal := filepath.Join(w.dir, "sessions", a.ID, "journal.json")
	w.put(journal, "{")
	orphan := filepath.Join(w.dir, "layers", "lyr_01ktest")
	if err := os.MkdirAll(filepath.Join(orphan, "fs"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.want(w.sh("b", "echo alive"), "alive")
	if status, text := w.doctor("journals"); status != "fail" || !strings.Contains(text, journal) {
		t.Errorf("doctor says %s: %s", status, text)
	}
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err == nil {
		t.Error("a session was taken up of which nobody knows what it was doing")
	}
	w.close()
	if _, err := os.Stat(orphan); err != nil {
		t.Errorf("a layer that the journal may have named: %v", err)
	}
	// Its owner decides to go on without.
	if err := os.Remove(journal); err != nil {
		t.Fatal(err)
	}
	w.open()
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err != nil {
		t.Error(err)
	}
	w.want(w.sh("a", "echo alive"), "alive")
}

// TestS4_ASessionCanLeaveADamagedCheckpoint sleeps on a checkpoint whose memory is damaged: it cannot wake, but can go back to another one.
func TestS4_ASessionCanLeaveADamagedCheckpoint(t *testing.T) {
	w := newWorld(t)
	w.create("a", gvisor.Name)
	w.sh("a", "echo one > /root/file")
	good, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{Message: "good"})
	if err != nil {
		t.Fatal(err)
	}
	w.sh("a", "echo two > /root/file")
	s, err := w.svc.SuspendSession(w.ctx(), "a")
	if err != nil {
		t.Fatal(err)
	}
	w.durable("a", s.Workspace.CheckpointID)
	images, err := filepath.Glob(filepath.Join(w.dir, "checkpoints", s.Workspace.CheckpointID, "memory", "*"))
	packs, perr := filepath.Glob(filepath.Join(w.dir, "images", "*", "packs", "*"))
	if err != nil || perr != nil || len(images) == 0 || len(packs) == 0 {
		t.Fatal(images, packs, err, perr)
	}
	for _, name := range append(images, packs...) {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		if st.Nlink > 1 {
			continue // pages that the good one has too
		}
		if err := os.Truncate(name, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err == nil {
		t.Fatal("it woke from a damaged image")
	}
	w.state("a", "suspended")
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: good.ID}); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat /root/file"), "one")
	if _, err := w.svc.UndoSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat /root/file"), "two")
}
