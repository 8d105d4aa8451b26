package agent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/tool/tooltest"
)

// meanwhile runs the harness and calls f once the command has written its line.
func meanwhile(t *testing.T, w *world, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.run() }()
	waitFor(t, func() bool { return len(w.ran("ran")) == 1 })
	f()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.check()
}

const waiting = `
turns:
  - when: {step: 1}
    calls:
      - {tool: run, args: {command: "echo x >> ran; while [ ! -e go ]; do sleep 0.01; done; echo got it"}}
      - {tool: run, args: {command: "echo second >> ran"}}
  - {when: {last: user, user: stop}, text: "stopped: {{.User}}"}
  - {when: {any: steer me}, text: steered}
  - {when: {step: 2}, text: unsteered}
  - {when: {user: later}, text: "queued"}
`

func TestSteerWaitsForTheTools(t *testing.T) {
	w := newWorld(t, waiting, "go", event.Limits{})
	meanwhile(t, w, func() { w.send("steer me", event.Steer); w.touch("go") })
	if w.lastText() != "steered" || len(w.reasons()) != 1 {
		t.Errorf("answer %q, turns %v", w.lastText(), w.reasons())
	}
	last := w.seen[len(w.seen)-1]
	if m := last[len(last)-1]; m.Role != model.User || m.Text != "steer me" {
		t.Errorf("the last message is %+v", m)
	}
}

func TestQueueWaitsForTheTurn(t *testing.T) {
	w := newWorld(t, waiting, "go", event.Limits{})
	meanwhile(t, w, func() { w.send("later", event.Queue); w.touch("go") })
	texts := []string{}
	for _, m := range only[event.MessageAgentData](w, event.MessageAgent) {
		texts = append(texts, m.Text)
	}
	if !slices.Equal(texts, []string{"", "unsteered", "queued"}) {
		t.Errorf("answers %q", texts)
	}
}

func TestInterruptStopsTheCommand(t *testing.T) {
	w := newWorld(t, waiting, "go", event.Limits{})
	meanwhile(t, w, func() { w.send("stop it", event.Interrupt) })
	if got := w.reasons(); !slices.Equal(got, []string{"interrupted", "answered"}) {
		t.Errorf("turns ended %v", got)
	}
	res := w.results()
	if res[0].Outcome != event.OutcomeCanceled || res[1].Outcome != event.OutcomeCanceled || !strings.Contains(res[1].Output, "Not run") {
		t.Errorf("results %+v", res)
	}
	if got := w.ran("ran"); len(got) != 1 {
		t.Errorf("ran %v", got)
	}
	if w.lastText() != "stopped: stop it" {
		t.Errorf("answer %q", w.lastText())
	}
}

func TestCancelStopsTheCommand(t *testing.T) {
	w := newWorld(t, waiting, "go", event.Limits{})
	meanwhile(t, w, func() {
		w.send("later", event.Queue)
		w.append0(event.Draft{Type: event.SessionCanceled, ActorID: "tester", Data: event.SessionCanceledData{Reason: "enough"}})
	})
	// What had been queued before the cancel waits for somebody to speak again.
	if got := w.reasons(); !slices.Equal(got, []string{"canceled"}) {
		t.Errorf("turns ended %v", got)
	}
	list, err := w.sandbox.Execs().List(t.Context())
	if err != nil || len(list) != 1 || list[0].Signal == "" {
		t.Errorf("commands %+v, %v", list, err)
	}
	w.send("stop now", event.Steer)
	w.mustRun()
	if w.lastText() != "stopped: stop now" {
		t.Errorf("answer %q", w.lastText())
	}
}

// A command that ignores SIGINT is killed after the grace.
func TestCancelKillsTheStubborn(t *testing.T) {
	w := newWorld(t, `
turns:
  - when: {step: 1}
    calls: [{tool: run, args: {command: "trap '' INT; echo x >> ran; sleep 60; sleep 60"}}]
`, "go", event.Limits{})
	meanwhile(t, w, func() {
		w.append0(event.Draft{Type: event.SessionCanceled, ActorID: "tester", Data: event.SessionCanceledData{}})
	})
	if got := w.reasons(); !slices.Equal(got, []string{"canceled"}) {
		t.Errorf("turns ended %v", got)
	}
}

// A cancel that arrives while no daemon runs is carried out by the next one.
func TestCancelWhileDown(t *testing.T) {
	w := newWorld(t, oneCommand, "go", event.Limits{})
	crashStarted(t, w)
	w.append0(event.Draft{Type: event.SessionCanceled, ActorID: "tester", Data: event.SessionCanceledData{}})
	w.mustRun()
	w.check()
	if r := w.results()[0]; r.Outcome != event.OutcomeCanceled {
		t.Errorf("result %+v", r)
	}
	if err := w.sandbox.(*tooltest.Sandbox).Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCancelDuringModelCall(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {step: 1, user: go}, delay: 60s, text: never}
  - {when: {user: again}, text: here}
`, "go", event.Limits{})
	w.onAppend = func(events []event.Event) {
		if events[0].Type == event.ModelRequested && len(w.reasons()) == 0 {
			time.AfterFunc(20*time.Millisecond, func() {
				w.append0(event.Draft{Type: event.SessionCanceled, ActorID: "tester", Data: event.SessionCanceledData{}})
			})
		}
	}
	w.mustRun()
	if got := w.reasons(); !slices.Equal(got, []string{"canceled"}) {
		t.Errorf("turns ended %v", got)
	}
	w.send("again", event.Steer)
	w.mustRun()
	if w.lastText() != "here" {
		t.Errorf("answer %q", w.lastText())
	}
}
