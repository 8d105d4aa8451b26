package service_test

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"
	_ "modernc.org/sqlite"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/sandbox/process"
)

// flip changes a byte in the middle of a file, and not its times.
func (w *world) flip(name string) {
	w.t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		w.t.Fatal(err)
	}
	b[len(b)/2] ^= 0xff
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(b[len(b)/2:len(b)/2+1], int64(len(b)/2))
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Chtimes(name, info.ModTime(), info.ModTime())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// each calls do for the files that match, of which there must be some.
func (w *world) each(do func(name string), pattern ...string) {
	w.t.Helper()
	names, err := filepath.Glob(filepath.Join(append([]string{w.dir}, pattern...)...))
	if err != nil || len(names) == 0 {
		w.t.Fatalf("%q: %q, %v", pattern, names, err)
	}
	for _, name := range names {
		do(name)
	}
}

// ownPages returns the file of pages that a checkpoint's image has and no earlier one's.
func (w *world) ownPages(ckpt string) string {
	w.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(w.dir, "checkpoints", "*", "memory")) // sorted, by when they were made
	if err != nil {
		w.t.Fatal(err)
	}
	before := map[string]bool{}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "pages-*.img"))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, name := range names {
			if base := filepath.Base(name); before[base] {
				continue
			} else if dir == filepath.Join(w.dir, "checkpoints", ckpt, "memory") {
				return name
			} else {
				before[base] = true
			}
		}
	}
	w.t.Fatalf("%s has no pages of its own", ckpt)
	return ""
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(name); err != nil {
		w.t.Fatal(err)
	}
}

// story makes a session with three states: checkpoint "one", checkpoint "two", and the one that it sleeps on, all durable.
func (w *world) story(driver string) (one, two, last string) {
	w.t.Helper()
	w.create("a", driver)
	for _, name := range []string{"one", "two"} {
		w.say(driver, name)
		ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{Message: name})
		if err != nil {
			w.t.Fatal(err)
		}
		w.durable("a", ck.ID)
		if one == "" {
			one = ck.ID
		}
		two = ck.ID
	}
	w.say(driver, "three")
	s, err := w.svc.SuspendSession(w.ctx(), "a")
	if err != nil {
		w.t.Fatal(err)
	}
	w.durable("a", s.Workspace.CheckpointID)
	return one, two, s.Workspace.CheckpointID
}

// say puts a word into a file and, where there is memory, into a variable.
func (w *world) say(driver, word string) {
	w.t.Helper()
	w.sh("a", "echo "+word+" > ~/file")
	if driver != process.Name {
		w.python("a", "x = '"+word+"'")
	}
}

// newLayer returns the directory of the layer that a checkpoint has and an earlier one has not.
func (w *world) newLayer(ckpt, before string) string {
	w.t.Helper()
	old := w.manifest(before).Layers
	for _, l := range w.manifest(ckpt).Layers {
		if !slices.Contains(old, l) {
			return filepath.Join(w.dir, "layers", string(l))
		}
	}
	w.t.Fatal("no new layer")
	return ""
}

func (w *world) rescue(req api.RecoverSession) api.RecoverReport {
	w.t.Helper()
	r, err := w.svc.RecoverSession(w.ctx(), "a", req)
	if err != nil {
		w.t.Fatalf("recover: %v", err)
	}
	return r
}

// TestRecover damages what a session sleeps on in each of the ways that a disk, a power cut or a person can. Resume says so and changes nothing;
// recover goes to the newest checkpoint that verifies and says what it passed over.
func TestRecover(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(w *world, one, two, last string)
		want   string // the word that is back
		resume bool   // resume does not notice
	}{
		"a byte of the memory, in both of its images": {want: "two", damage: func(w *world, _, _, last string) {
			w.flip(w.ownPages(last))
			w.each(w.remove, "images", "*", "manifests", last)
		}},
		"the memory, also of the one before": {want: "one", damage: func(w *world, _, two, last string) {
			for _, ck := range []string{two, last} {
				w.flip(w.ownPages(ck))
				w.each(w.remove, "images", "*", "manifests", ck)
			}
		}},
		"the manifest": {want: "two", damage: func(w *world, _, _, last string) {
			w.remove(filepath.Join(w.dir, "checkpoints", last, "manifest.json"))
		}},
		"the manifest and the one before": {want: "one", damage: func(w *world, _, two, last string) {
			w.flip(filepath.Join(w.dir, "checkpoints", last, "manifest.json"))
			w.remove(filepath.Join(w.dir, "checkpoints", two))
		}},
		"a layer": {want: "two", damage: func(w *world, _, two, last string) {
			w.remove(w.newLayer(last, two))
		}},
		"a byte of a file": {want: "two", resume: true, damage: func(w *world, _, two, last string) {
			w.flip(filepath.Join(w.newLayer(last, two), "fs", "root", "file"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			one, two, last := w.story("")
			w.close()
			c.damage(w, one, two, last)
			w.open()
			if !c.resume {
				if _, err := w.svc.ResumeSession(w.ctx(), "a"); errdefs.KindOf(err) != errdefs.Corrupt || !strings.Contains(errdefs.HintOf(err), "perdure recover") {
					t.Fatalf("resume says %v, %q", err, errdefs.HintOf(err))
				}
			}
			target := map[string]string{"one": one, "two": two}[c.want]
			dry := w.rescue(api.RecoverSession{DryRun: true})
			w.state("a", "suspended")
			r := w.rescue(api.RecoverSession{})
			for _, r := range []api.RecoverReport{dry, r} {
				if r.CheckpointID != target || !slices.Contains(r.Layers, "memory") || len(r.Skipped) == 0 || r.Skipped[0].CheckpointID != last || r.Skipped[0].Code == "" || r.CutSeq == 0 {
					t.Fatalf("%+v", r)
				}
			}
			w.want(w.sh("a", "cat ~/file"), c.want)
			w.want(w.python("a", "x"), "'"+c.want+"'")
			if _, err := w.svc.RecoverSession(w.ctx(), "a", api.RecoverSession{}); errdefs.CodeOf(err) != "nothing_to_recover" {
				t.Errorf("once more: %v", err)
			}
			if r.UndoCheckpointID != "" && !c.resume {
				if _, err := w.svc.UndoSession(w.ctx(), "a"); err != nil {
					t.Fatal(err)
				}
				w.want(w.sh("a", "cat ~/file"), "three")
			} else if name == "a layer" && len(r.Lost) == 0 {
				t.Errorf("nobody says that the present is lost: %+v", r)
			}
		})
	}
}

// TestRecoverWithoutDamageLosesNothing: what sleeps and is whole just wakes.
func TestRecoverWithoutDamageLosesNothing(t *testing.T) {
	w := newWorld(t)
	_, _, last := w.story("")
	r := w.rescue(api.RecoverSession{})
	if r.CheckpointID != last || r.CutSeq != 0 || len(r.Lost) > 0 || len(r.Skipped) > 0 {
		t.Errorf("%+v", r)
	}
	w.want(w.python("a", "x"), "'three'")
}

// TestRecoverFallsToFiles: no checkpoint has memory that verifies, so the newest files come back, and it is told what ran.
func TestRecoverFallsToFiles(t *testing.T) {
	w := newWorld(t)
	one, _, last := w.story("")
	w.each(w.remove, "checkpoints", "*", "memory", "pages-*.img")
	w.each(w.remove, "images", "*", "packs", "*")
	r := w.rescue(api.RecoverSession{})
	if r.CheckpointID != last || !slices.Equal(r.Layers, []string{"files", "transcript"}) || len(r.Skipped) != 3 || r.CutSeq != 0 {
		t.Fatalf("%+v", r)
	}
	if d := r.ResumeReport.Devolved; len(d) != 1 || d[0].Layer != "memory" || d[0].Code != "damaged" {
		t.Errorf("devolved: %+v", d)
	}
	w.want(w.sh("a", "cat ~/file"), "three")
	// A checkpoint that is named is the only one that is looked at.
	if _, err := w.svc.StopSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	if r = w.rescue(api.RecoverSession{From: "one"}); r.CheckpointID != one || r.UndoCheckpointID == "" || r.CutSeq == 0 {
		t.Errorf("%+v", r)
	}
	w.want(w.sh("a", "cat ~/file"), "one")
	if _, err := w.svc.UndoSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat ~/file"), "three")
}

// TestRecoverFallsToTheTranscript: nothing of the workspace is left but what the log says.
func TestRecoverFallsToTheTranscript(t *testing.T) {
	w := newWorld(t)
	w.story("")
	before := w.get("a").LastSeq
	w.close()
	w.each(w.remove, "checkpoints", "*")
	w.each(w.remove, "layers", "*")
	w.open()
	if _, err := w.svc.RecoverSession(w.ctx(), "a", api.RecoverSession{From: "one"}); errdefs.CodeOf(err) != "checkpoint_corrupt" {
		t.Errorf("from one: %v", err)
	}
	r := w.rescue(api.RecoverSession{})
	if r.CheckpointID != "" || !slices.Equal(r.Layers, []string{"transcript"}) || len(r.Skipped) != 3 || len(r.Lost) == 0 {
		t.Fatalf("%+v", r)
	}
	w.want(w.sh("a", "ls ~/file 2>/dev/null || echo none"), "none")
	d := told[event.WorkspaceDevolvedData](w, "a", event.WorkspaceDevolved)
	if len(d) != 1 || d[0].Layer != "files" || d[0].Code != "damaged" {
		t.Errorf("devolved: %+v", d)
	}
	if s := w.get("a"); s.LastSeq <= before || !slices.Equal(s.ResumeReport.Layers, []string{"transcript"}) {
		t.Errorf("%+v", s)
	}
	if _, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{}); err != nil { // it goes on from here
		t.Error(err)
	}
}

// TestRecoverAfterTheEngineWasKilled goes from the files that the sandbox left to the last moment of which there is memory, and back.
func TestRecoverAfterTheEngineWasKilled(t *testing.T) {
	w := newWorld(t)
	s := w.create("a", "")
	w.say("", "one")
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{Message: "one"})
	if err != nil {
		t.Fatal(err)
	}
	w.say("", "two")
	w.killSandbox(s.Workspace.SandboxID)
	w.until("a", "lost")
	r := w.rescue(api.RecoverSession{})
	if r.CheckpointID != ck.ID || r.UndoCheckpointID == "" {
		t.Fatalf("%+v", r)
	}
	w.want(w.python("a", "x"), "'one'")
	w.want(w.sh("a", "cat ~/file"), "one")
	if _, err := w.svc.UndoSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat ~/file"), "two")
}

// TestRecoverPresentFiles: there has never been a checkpoint, and the sandbox is dead.
func TestRecoverPresentFiles(t *testing.T) {
	w := newWorld(t)
	s := w.create("a", "")
	w.say("", "one")
	w.killSandbox(s.Workspace.SandboxID)
	w.until("a", "lost")
	if r := w.rescue(api.RecoverSession{}); r.CheckpointID != "" || !slices.Equal(r.Layers, []string{"files", "transcript"}) {
		t.Fatalf("%+v", r)
	}
	w.want(w.sh("a", "cat ~/file"), "one")
}

// until waits for a workspace to be in a state.
func (w *world) until(ref, state string) {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	if _, err := w.svc.WaitSession(ctx, ref, []string{state}); err != nil {
		w.t.Fatal(err)
	}
}

// rewrite changes a manifest and, behind the daemon's back, what the row says of it. The service is closed.
func (w *world) rewrite(ckpt string, change func(*checkpoint.Manifest)) {
	w.t.Helper()
	m := w.manifest(ckpt)
	change(&m)
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		w.t.Fatal(err)
	}
	b = append(b, '\n')
	w.put(filepath.Join(w.dir, "checkpoints", ckpt, "manifest.json"), string(b))
	dbs, err := filepath.Glob(filepath.Join(w.dir, "*.db"))
	if err != nil || len(dbs) != 1 {
		w.t.Fatal(dbs, err)
	}
	db, err := sql.Open("sqlite", dbs[0])
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	sum := blake3.Sum256(b)
	if _, err := db.ExecContext(w.ctx(), "UPDATE checkpoints SET manifest_hash = ? WHERE id = ?", hexOf(sum[:]), ckpt); err != nil {
		w.t.Fatal(err)
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for _, c := range b {
		out.WriteByte(digits[c>>4])
		out.WriteByte(digits[c&15])
	}
	return out.String()
}

// TestRecoverAfterTheMachineWentDown: everything is dead, the clock went backwards, and what had not reached the disk for certain does not count.
func TestRecoverAfterTheMachineWentDown(t *testing.T) {
	w := newWorld(t)
	one, two, last := w.story("")
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.killSandbox(w.lastSandbox())
	for _, ck := range []string{two, last} { // as they are before they are durable
		for _, name := range []string{"seal.json", "synced"} {
			w.remove(filepath.Join(w.dir, "checkpoints", ck, name))
		}
	}
	w.remove(filepath.Join(w.newLayer(two, one), "seal.json"))
	w.remove(filepath.Join(w.newLayer(last, two), "seal.json"))
	for _, ck := range []string{two, last} {
		w.rewrite(ck, func(m *checkpoint.Manifest) { m.Boot, m.CreatedAt = "another", m.CreatedAt.Add(-1000*time.Hour) })
	}
	w.open()
	w.until("a", "lost")
	r := w.rescue(api.RecoverSession{})
	if r.CheckpointID != one || len(r.Skipped) != 2 || !strings.Contains(r.Skipped[0].Detail, "went down") {
		t.Fatalf("%+v", r)
	}
	w.want(w.python("a", "x"), "'one'")
}

// lastSandbox is the only one there is.
func (w *world) lastSandbox() string {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "run"))
	if err != nil || len(entries) != 1 {
		w.t.Fatal(entries, err)
	}
	return entries[0].Name()
}

// TestRecoverADamagedJournal: nobody can tell how far a suspend got that the daemon's death cut.
func TestRecoverADamagedJournal(t *testing.T) {
	w := newWorld(t)
	s := w.create("a", "")
	w.say("", "one")
	if _, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{Message: "one"}); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.killSandbox(s.Workspace.SandboxID)
	w.put(filepath.Join(w.dir, "sessions", s.ID, "journal.json"), "{")
	w.open()
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err == nil {
		t.Fatal("it woke")
	}
	w.rescue(api.RecoverSession{})
	w.want(w.python("a", "x"), "'one'")
}
