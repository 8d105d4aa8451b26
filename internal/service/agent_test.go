package service_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
)

// slowScript runs one command that waits for a file, and says what it printed.
const slowScript = `
turns:
  - when: {last: user, user: "again"}
    text: I did that already.
  - when: {last: user}
    calls:
      - tool: run
        args: {command: "echo ran >> /root/runs; until [ -e /root/go ]; do sleep 0.1; done; echo done", timeout_seconds: 120}
  - when: {last: tool}
    text: "It says: {{.Result}}"
`

func (w *world) agent(name, goal, script string) api.Session {
	w.t.Helper()
	file := filepath.Join(w.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		w.t.Fatal(err)
	}
	s, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: name, Goal: goal, Model: "scripted:" + file})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) wait(ref string, states ...string) api.Session {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	s, err := w.svc.WaitSession(ctx, ref, states)
	if err != nil {
		w.t.Fatalf("%v; it is %+v", err, w.get(ref).Workspace)
	}
	return s
}

// untilEvent waits for an event of a type and returns the log up to it.
func (w *world) untilEvent(ref string, want event.Type) []api.Event {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	items, err := w.svc.Subscribe(ctx, ref, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var seen []api.Event
	for item, err := range items {
		if err != nil {
			w.t.Fatalf("waiting for %s: %v", want, err)
		}
		if item.Event == nil {
			continue
		}
		seen = append(seen, *item.Event)
		if item.Event.Type == string(want) {
			return seen
		}
	}
	w.t.Fatalf("the log ended before %s", want)
	return nil
}

// results returns the results of all tool calls, and fails if a call has none or two.
func (w *world) results(ref string) []event.ToolFinishedData {
	w.t.Helper()
	list, err := w.svc.ListEvents(w.ctx(), ref, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	open := map[string]int{}
	var out []event.ToolFinishedData
	for _, e := range list.Data {
		switch event.Type(e.Type) {
		case event.ToolRequested:
			open[e.ID]++
		case event.ToolFinished:
			open[e.CausationID]--
			var d event.ToolFinishedData
			if err := json.Unmarshal(e.Data, &d); err != nil {
				w.t.Fatal(err)
			}
			out = append(out, d)
		}
	}
	for call, n := range open {
		if n != 0 {
			w.t.Fatalf("call %s has %d results", call, 1-n)
		}
	}
	return out
}

// collected lets the waiting command end and checks that it ran once and was heard once.
func (w *world) collected(ref string) {
	w.t.Helper()
	w.sh(ref, "touch /root/go")
	s := w.wait(ref, "done")
	if s.Status != "idle" || s.StopReason != "answered" {
		w.t.Fatalf("session is %s, %s: %s", s.Status, s.StopReason, s.StopMessage)
	}
	w.want(w.sh(ref, "cat /root/runs"), "ran")
	r := w.results(ref)
	if len(r) != 1 || r[0].Outcome != event.OutcomeOK || !strings.Contains(r[0].Output, "done") {
		w.t.Fatalf("results: %+v", r)
	}
}

func TestH1_CommandOfATurnSurvivesTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.agent("one", "do it", slowScript)
	w.untilEvent("one", event.ToolStarted)
	w.sh("one", "until [ -e /root/runs ]; do sleep 0.05; done") // the intent is logged before the command runs
	w.restart()
	w.collected("one")
}

func TestSuspendInTheMiddleOfACommand(t *testing.T) {
	w := newWorld(t)
	w.agent("one", "do it", slowScript)
	w.untilEvent("one", event.ToolStarted)
	w.sh("one", "until [ -e /root/runs ]; do sleep 0.05; done") // the intent is logged before the command runs
	if _, err := w.svc.SuspendSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.state("one", "suspended")
	w.restart() // it sleeps on: nobody asked it to wake
	if s := w.state("one", "suspended"); s.Status != "running" {
		t.Fatalf("status %s", s.Status)
	}
	if _, err := w.svc.ResumeSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.collected("one")
}

func TestRollbackInTheMiddleOfACommandClosesIt(t *testing.T) {
	w := newWorld(t)
	w.agent("one", "do it", slowScript)
	w.untilEvent("one", event.ToolStarted)
	w.sh("one", "until [ -e /root/runs ]; do sleep 0.05; done") // the intent is logged before the command runs
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "one", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := w.svc.ForkSession(w.ctx(), "one", api.ForkSession{Checkpoint: ck.ID, Name: "two"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.RollbackSession(w.ctx(), "one", api.RollbackSession{Checkpoint: ck.ID}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", forks.Data[0].Name} {
		w.untilEvent(name, event.TurnFinished)
		s := w.wait(name, "done")
		if s.Status == "running" || s.Status == "failed" {
			t.Fatalf("%s is %s: %s", name, s.Status, s.StopMessage)
		}
		if _, err := w.svc.SendMessages(w.ctx(), name, api.SendMessages{Messages: []api.Message{{Text: "again"}}}); err != nil {
			t.Fatal(err)
		}
		if s := w.wait(name, "done"); s.StopReason != "answered" {
			t.Fatalf("%s: %+v", name, s)
		}
	}
}

func TestMessageWakesASuspendedSession(t *testing.T) {
	w := newWorld(t)
	w.agent("one", "do it", strings.ReplaceAll(slowScript, "until [ -e /root/go ]; do sleep 0.1; done", "true"))
	w.wait("one", "done")
	if _, err := w.svc.SuspendSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.SendMessages(w.ctx(), "one", api.SendMessages{Messages: []api.Message{{Text: "and once more"}}}); err != nil {
		t.Fatal(err)
	}
	w.wait("one", "done")
	w.state("one", "running")
	w.want(w.sh("one", "cat /root/runs"), "ran\nran")
}

func TestX3_DeadSandboxIsReportedAndItsFilesAreKept(t *testing.T) {
	w := newWorld(t)
	s := w.create("one", "")
	w.sh("one", "echo kept > /root/f")
	x := w.start("one", api.StartExec{Argv: []string{"sleep", "1000"}})
	w.killSandbox(s.Workspace.SandboxID)
	got, _ := w.finish("one", x.ID)
	if got.ExitCode != nil || got.State != "lost" || got.Cause == "" {
		t.Fatalf("the command of a dead sandbox: %+v", got)
	}
	w.wait("one", "lost")
	if s := w.state("one", "lost"); s.Workspace.Cause == "" {
		t.Fatal("no cause")
	}
	w.want(w.sh("one", "cat /root/f"), "kept")
	if s := w.state("one", "running"); s.ResumeReport == nil || len(s.ResumeReport.Lost) == 0 {
		t.Fatalf("resume report: %+v", s.ResumeReport)
	}
}
