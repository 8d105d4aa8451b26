package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store/sqlite"
	"perdure.dev/perdure/internal/tool/tooltest"
)

// crashScript must come to the same end wherever it is cut. Each command writes its name when it runs; effects are checked, not
// outcomes, since a repaired call may have another text.
const crashScript = `
turns:
  - when: {step: 1}
    text: first
    calls:
      - {tool: run, args: {command: "echo one >> ran; echo hello"}}
      - {tool: run, args: {command: "echo two >> ran; echo hello"}}
      - {tool: write_file, args: {path: note.txt, content: "abc\n"}}
  - when: {step: 2}
    calls:
      - {tool: read_file, args: {path: note.txt}}
      - {tool: edit_file, args: {path: note.txt, old_string: b, new_string: bb}}
      - {tool: run, raw_args: '{"command": "echo cut >> ra'}
      - {tool: run, args: {command: "echo three >> ran", background: true}}
      - {tool: checkpoint, args: {message: half}}
  - when: {step: 3}
    calls:
      - {tool: run, args: {command: "echo four >> ran"}}
  - when: {step: 4, user: go}
    text: done
  - when: {step: 5, user: more}
    calls:
      - {tool: run, args: {command: "echo five >> ran"}}
  - when: {step: 6}
    calls:
      - {tool: finish, args: {result: "all done"}}
`

// TestH1_CrashAtEveryAppend kills the loop at each append, before and after it is stored, and lets a fresh loop go on.
func TestH1_CrashAtEveryAppend(t *testing.T) {
	dir := fastDir(t)
	store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	probe := newWorldOn(t, store, filepath.Join(dir, "probe"), crashScript, "go", event.Limits{})
	playAll(t, probe)
	n := probe.appends
	if n < 30 {
		t.Fatalf("only %d appends", n)
	}
	for _, after := range []bool{false, true} {
		for k := 1; k <= n; k++ {
			t.Run(fmt.Sprintf("append%d/stored=%v", k, after), func(t *testing.T) {
				w := newWorldOn(t, store, filepath.Join(dir, fmt.Sprintf("w%d%v", k, after)), crashScript, "go", event.Limits{})
				w.crashAt, w.after = k, after
				playAll(t, w)
			})
		}
	}
}

// TestH4_CrashAgainAndAgain lets the loop make two appends per life, which is the least with which a model's answer can be had.
func TestH4_CrashAgainAndAgain(t *testing.T) {
	w := newWorld(t, crashScript, "go", event.Limits{})
	for life := 0; ; life++ {
		if life > 200 {
			w.dump()
			t.Fatal("it does not come to an end")
		}
		w.appends, w.crashAt, w.after = 0, 2, true
		err := w.run()
		if err == nil {
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
	}
	w.crashAt = 0
	playAll(t, w)
}

// fastDir is a directory in memory where there is one: these tests make thousands of appends, and none is about the disk.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agent-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// playAll lets the session come to its end, with a restart after each crash, and checks everything.
func playAll(t *testing.T, w *world) {
	t.Helper()
	w.t = t
	life := func() {
		err := w.run()
		if errors.Is(err, errCrash) {
			w.mu.Lock()
			w.crashAt = 0
			w.mu.Unlock()
			err = w.run()
		}
		if err != nil {
			t.Fatalf("run: %v", err)
		}
	}
	life()
	w.send("more", event.Queue)
	life()
	w.check()
	want := []string{"five", "four", "one", "three", "two"}
	waitFor(t, func() bool { return len(w.ran("ran")) >= len(want) })
	got := w.ran("ran")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.dump()
		t.Errorf("ran %v, want %v", got, want)
	}
	if got := w.reasons(); !slices.Equal(got, []string{"answered", "finished"}) {
		w.dump()
		t.Errorf("turns ended %v", got)
	}
	if n := len(only[event.SessionFinishedData](w, event.SessionFinished)); n != 1 {
		t.Errorf("%d times finished", n)
	}
}

// waitFor polls for what a background command does; nothing signals it.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const oneCommand = `
turns:
  - when: {step: 1}
    calls:
      - {tool: run, args: {command: "echo once >> ran; while [ ! -e go ]; do sleep 0.01; done; echo got it"}}
  - {when: {step: 2}, text: "{{.Result}}"}
`

// crashStarted runs until the command is running, and dies there.
func crashStarted(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := contextWithCancel(t)
	died := make(chan error, 1)
	go func() { died <- w.agent().Run(ctx, w) }()
	waitFor(t, func() bool { return len(w.ran("ran")) == 1 })
	cancel(errCrash)
	if err := <-died; !errors.Is(err, errCrash) {
		t.Fatalf("it died of %v", err)
	}
	if n := len(w.results()); n != 0 {
		t.Fatalf("%d results after the crash", n)
	}
}

func TestH1_CollectsWhatFinishedMeanwhile(t *testing.T) {
	w := newWorld(t, oneCommand, "go", event.Limits{})
	crashStarted(t, w)
	w.touch("go")
	exec := id.Exec(w.requested(0))
	if _, err := w.sandbox.Execs().Wait(t.Context(), exec); err != nil {
		t.Fatal(err)
	}
	w.mustRun()
	w.check()
	r := w.results()[0]
	if !r.Collected || r.Outcome != event.OutcomeOK || r.Output != "got it\n" {
		t.Errorf("result %+v", r)
	}
	if got := w.ran("ran"); len(got) != 1 {
		t.Errorf("ran %v", got)
	}
}

func TestH1_WaitsForWhatStillRuns(t *testing.T) {
	w := newWorld(t, oneCommand, "go", event.Limits{})
	crashStarted(t, w)
	time.AfterFunc(50*time.Millisecond, func() { w.touch("go") })
	w.mustRun()
	w.check()
	if r := w.results()[0]; r.Collected || r.Outcome != event.OutcomeOK || r.Output != "got it\n" {
		t.Errorf("result %+v", r)
	}
	if got := w.ran("ran"); len(got) != 1 {
		t.Errorf("ran %v", got)
	}
}

func TestH1_SandboxDiedMeanwhile(t *testing.T) {
	w := newWorld(t, oneCommand, "go", event.Limits{})
	crashStarted(t, w)
	if err := w.sandbox.(*tooltest.Sandbox).Lose(t.Context(), "the machine was switched off"); err != nil {
		t.Fatal(err)
	}
	w.mustRun()
	w.check()
	if r := w.results()[0]; r.Outcome != event.OutcomeInterrupted || !strings.Contains(r.Output, "switched off") || r.ExitCode != nil {
		t.Errorf("result %+v", r)
	}
}

// A new sandbox that knows nothing of a started command cannot say that it has not run.
func TestH4_UnknownAfterAnotherSandbox(t *testing.T) {
	w := newWorld(t, oneCommand, "go", event.Limits{})
	w.crashAt, w.after = 4, true // turn.started, model.requested, the answer, tool.started
	if err := w.run(); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	w.crashAt = 0
	w.append0(event.Draft{Type: event.WorkspaceLost, ActorID: "tester", Data: event.WorkspaceLostData{Cause: "power"}})
	w.mustRun()
	w.check()
	if r := w.results()[0]; r.Outcome != event.OutcomeUnknown {
		t.Errorf("result %+v", r)
	}
	if got := w.ran("ran"); len(got) != 0 {
		t.Errorf("ran %v", got)
	}
}

func TestH4_EditIsNotRepeated(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {step: 1}, calls: [{tool: edit_file, args: {path: f, old_string: a, new_string: aa}}]}
  - {when: {step: 2}, text: "{{.Result}}"}
`, "go", event.Limits{})
	if err := os.WriteFile(filepath.Join(w.home, "f"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.crashAt = 5 // the result
	if err := w.run(); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	w.crashAt = 0
	w.mustRun()
	w.check()
	if r := w.results()[0]; r.Outcome != event.OutcomeUnknown || !strings.Contains(r.Output, "Look at") {
		t.Errorf("result %+v", r)
	}
	if b, _ := os.ReadFile(filepath.Join(w.home, "f")); string(b) != "aa" {
		t.Errorf("the file is %q", b)
	}
}

func TestH4_CheckpointIsNotRepeated(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {step: 1}, calls: [{tool: checkpoint, args: {message: m}}]}
  - {when: {step: 2}, text: "{{.Result}}"}
`, "go", event.Limits{})
	w.crashAt, w.after = 5, true // checkpoint.created
	if err := w.run(); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	w.crashAt = 0
	w.mustRun()
	w.check()
	ck := only[event.CheckpointCreatedData](w, event.CheckpointCreated)
	if len(ck) != 1 || !strings.Contains(w.lastText(), string(ck[0].CheckpointID)) {
		t.Errorf("%d checkpoints, answer %q", len(ck), w.lastText())
	}
}

// What was open at a cut is closed by the copy, not run: in a rolled back session and in a fork.
func TestH1_CopiesCloseWhatWasOpen(t *testing.T) {
	for _, how := range []string{"rollback", "fork"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, oneCommand+"  - {when: {step: 2, user: now}, text: never}\n  - {when: {user: now}, text: fine}\n", "go", event.Limits{})
			crashStarted(t, w)
			cut := w.all()[len(w.all())-1].Seq
			w.touch("go")
			ck := id.NewCheckpoint()
			parent := w.sid
			if how == "rollback" {
				w.append0(event.Draft{Type: event.SessionRolledBack, ActorID: "tester", Data: event.SessionRolledBackData{
					CheckpointID: ck, CutSession: w.sid, CutSeq: cut, UndoCheckpointID: id.NewCheckpoint(),
				}})
			} else {
				spec := only[event.SessionCreatedData](w, event.SessionCreated)[0]
				spec.Name, spec.Fork = "child", &event.ForkOrigin{ParentID: parent, CheckpointID: ck, CutSeq: cut}
				w.sid, w.lease = id.NewSession(), 0
				w.append0(event.Draft{Type: event.SessionCreated, ActorID: "tester", Data: spec})
			}
			before := len(w.all())
			w.mustRun()
			closed := w.all()[before:]
			if len(closed) != 2 || closed[0].Type != event.ToolFinished || closed[1].Type != event.TurnFinished {
				w.dump()
				t.Fatalf("it did not just close what was open")
			}
			r := w.results()[0]
			if r.Outcome != event.OutcomeInterrupted || r.Collected {
				t.Errorf("result %+v", r)
			}
			w.send("now", event.Steer)
			w.mustRun()
			if got := w.reasons(); !slices.Equal(got, []string{"interrupted", "answered"}) {
				t.Errorf("turns ended %v", got)
			}
		})
	}
}
