package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

const endless = `
turns:
  - when: {user: go}
    usage: {input: 90, output: 10}
    calls: [{tool: run, args: {command: "echo x >> ran"}}]
`

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits event.Limits
		calls  int
		warned int // in two turns
	}{
		{"steps", event.Limits{Steps: 5}, 5, 2}, // counts within a turn
		{"total_tokens", event.Limits{TotalTokens: 1000}, 10, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, endless, "go", tt.limits)
			w.mustRun()
			w.check()
			if got := w.reasons(); !slices.Equal(got, []string{"limit"}) {
				t.Fatalf("turns ended %v", got)
			}
			if n := len(w.ran("ran")); n != tt.calls {
				t.Errorf("%d calls, want %d", n, tt.calls)
			}
			warned, reached := only[event.LimitData](w, event.LimitWarned), only[event.LimitData](w, event.LimitReached)
			if len(warned) != 1 || warned[0].Limit != tt.name || len(reached) != 1 || reached[0].Limit != tt.name {
				t.Errorf("warned %+v, reached %+v", warned, reached)
			}
			if warned[0].Used*5 < warned[0].Max*4 || warned[0].Used >= warned[0].Max {
				t.Errorf("warned at %+v", warned[0])
			}
			// A message starts a turn again; a limit over the session's life ends it at once.
			w.send("go on", event.Steer)
			w.mustRun()
			w.check()
			if got := w.reasons(); !slices.Equal(got, []string{"limit", "limit"}) {
				t.Errorf("turns ended %v", got)
			}
			if n := len(only[event.LimitData](w, event.LimitWarned)); n != tt.warned {
				t.Errorf("warned %d times, want %d", n, tt.warned)
			}
		})
	}
}

func TestLimitTurnTimeStopsTheCommand(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {step: 1}, calls: [{tool: run, args: {command: "sleep 60"}}]}
`, "go", event.Limits{TurnTime: 300 * time.Millisecond})
	w.mustRun()
	w.check()
	if got := w.reasons(); !slices.Equal(got, []string{"limit"}) {
		t.Fatalf("turns ended %v", got)
	}
	if r := w.results()[0]; r.Outcome != event.OutcomeCanceled || !strings.Contains(r.Output, "turn_time_ns") {
		t.Errorf("result %+v", r)
	}
}

func TestModelFailures(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {step: 1}, fail: {class: overloaded, times: 2}, text: made it}
  - {when: {user: again}, fail: {class: auth}}
  - {when: {user: third}, text: fine}
`, "go", event.Limits{})
	w.mustRun()
	if w.lastText() != "made it" {
		t.Fatalf("answer %q", w.lastText())
	}
	failed := only[event.ModelFailedData](w, event.ModelFailed)
	if len(failed) != 2 || !failed[1].Retry || failed[1].Code != "model_overloaded" {
		t.Errorf("failed %+v", failed)
	}
	w.send("again", event.Steer)
	w.mustRun()
	if got := w.reasons(); !slices.Equal(got, []string{"answered", "failed"}) {
		t.Errorf("turns ended %v", got)
	}
	sf := only[event.SessionFailedData](w, event.SessionFailed)
	if len(sf) != 1 || sf[0].Code != "model_auth" || sf[0].Hint == "" {
		t.Errorf("session failed %+v", sf)
	}
	w.send("third", event.Steer)
	w.mustRun()
	if w.lastText() != "fine" {
		t.Errorf("answer %q", w.lastText())
	}
}

func TestNoMatchNamesTheFile(t *testing.T) {
	w := newWorld(t, "turns:\n  - {when: {user: other}, text: x}\n", "go", event.Limits{})
	w.mustRun()
	sf := only[event.SessionFailedData](w, event.SessionFailed)
	if len(sf) != 1 || !strings.Contains(sf[0].Message, "script.yaml: no turn matches step 1") {
		t.Errorf("session failed %+v", sf)
	}
}

func TestWorkspaceThatDoesNotWake(t *testing.T) {
	w := newWorld(t, oneCommand, "go", event.Limits{})
	w.noSandbox = errdefs.New(errdefs.Unavailable, "workspace_broken", "it does not start")
	w.mustRun()
	w.check()
	if got := w.reasons(); !slices.Equal(got, []string{"failed"}) {
		t.Errorf("turns ended %v", got)
	}
	if sf := only[event.SessionFailedData](w, event.SessionFailed); len(sf) != 1 || sf[0].Code != "workspace_broken" {
		t.Errorf("session failed %+v", sf)
	}
}

// The view drops the oldest turns, keeps the goal, and stays acceptable (checkedProvider looks at each request).
func TestContextTrimmed(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {user: {regex: "^(goal|q)"}}, text: "`+strings.Repeat("word ", 400)+`"}
`, "goal: be long", event.Limits{ContextSize: 8000})
	w.mustRun()
	for i := range 30 {
		w.send(fmt.Sprintf("q%d %s", i, strings.Repeat("x", 400)), event.Queue)
		w.mustRun()
	}
	trims := only[event.ContextTrimmedData](w, event.ContextTrimmed)
	if len(trims) < 2 || trims[0].Turns == 0 || trims[0].Tokens == 0 {
		t.Fatalf("trims %+v", trims)
	}
	last := w.seen[len(w.seen)-1]
	if last[1].Text != "goal: be long" {
		t.Errorf("the goal is not the first: %q", last[1].Text)
	}
	if n := len(last); n > 30 || n < 4 {
		t.Errorf("%d messages in the last view", n)
	}
	if !strings.HasPrefix(last[len(last)-1].Text, "q29") {
		t.Errorf("the last message is %q", last[len(last)-1].Text)
	}
}

// Within one turn that is too long, whole call/result groups go, and what the user asked stays.
func TestContextTrimmedWithinATurn(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {user: first}, text: ok}
  - when: {user: the question}
    calls:
      - {tool: run, args: {command: "seq 1 400"}}
      - {tool: run, args: {command: "seq 1 400"}}
`, "", event.Limits{ContextSize: 8000, Steps: 40})
	w.send("first", event.Steer)
	w.mustRun()
	w.send("the question", event.Steer)
	w.mustRun()
	w.check()
	if n := len(only[event.ContextTrimmedData](w, event.ContextTrimmed)); n < 3 {
		t.Errorf("%d trims", n)
	}
	last := w.seen[len(w.seen)-1]
	if last[1].Text != "first" || last[2].Text != "the question" || last[3].Role != model.Assistant {
		t.Errorf("the view starts with %q, %q, %s", last[1].Text, last[2].Text, last[3].Role)
	}
	// A fresh harness makes the same view of the same log.
	w.send("the question again", event.Steer)
	w.mustRun()
	next := w.seen[len(w.seen)-40]
	if next[1].Text != "first" {
		t.Errorf("after a restart the view starts with %q", next[1].Text)
	}
}

// When the model says that a request is too long, the view shrinks and the model is asked again.
func TestContextTooLong(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {user: q}, text: "`+strings.Repeat("word ", 100)+`"}
`, "", event.Limits{})
	for i := range 10 {
		w.send(fmt.Sprintf("q%d", i), event.Queue)
	}
	w.mustRun()
	open := w.window
	w.window = func(m []model.Message) bool { return len(m) > 12 }
	defer func() { w.window = open }()
	w.send("q last", event.Queue)
	w.mustRun()
	if got := w.reasons(); got[len(got)-1] != "answered" || len(got) != 11 {
		t.Errorf("turns ended %v", got)
	}
	if len(only[event.ContextTrimmedData](w, event.ContextTrimmed)) == 0 {
		t.Error("nothing was trimmed")
	}
}

// TestH5_LongSession runs thousands of steps in one session.
func TestH5_LongSession(t *testing.T) {
	if testing.Short() {
		t.Skip("a session of a thousand model calls is left to the full run")
	}
	w := newWorldIn(t, fastDir(t), `
turns:
  - {when: {user: stop}, text: done}
  - {when: {last: user}, calls: [{tool: list_files, args: {}}]}
  - {when: {last: tool}, calls: [{tool: list_files, args: {}}, {tool: list_files, args: {}}]}
`, "go", event.Limits{Steps: 1000, ContextSize: 20000})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := w.agent().Run(ctx, w); err != nil {
		t.Fatal(err)
	}
	w.check()
	w.send("stop", event.Steer)
	w.mustRun()
	if w.lastText() != "done" {
		t.Errorf("answer %q", w.lastText())
	}
}
