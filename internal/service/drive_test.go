package service_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/event"
)

// failingHarness fails in its first run, after during.
type failingHarness struct {
	agent.Harness
	runs   *atomic.Int64
	during func(agent.Host)
}

func (h failingHarness) Run(ctx context.Context, host agent.Host) error {
	if h.runs.Add(1) > 1 {
		return h.Harness.Run(ctx, host)
	}
	h.during(host)
	return errors.New("this run fails")
}

// TestA_MessageDuringARunThatFailsIsRead sends a message while the harness is about to fail. Nobody has to send another one for it to be
// read, whether the harness has seen yet that something came or not.
func TestA_MessageDuringARunThatFailsIsRead(t *testing.T) {
	for name, seen := range map[string]bool{"unseen": false, "seen": true} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			w := &world{}
			w.harness = func(h agent.Harness) agent.Harness {
				return failingHarness{h, &runs, func(host agent.Host) {
					msg := []api.Message{{Text: "are you there?"}}
					if _, err := w.svc.SendMessages(w.ctx(), string(host.Session()), api.SendMessages{Messages: msg}); err != nil {
						t.Errorf("send: %v", err)
					}
					if seen {
						<-host.Changed()
					}
				}}
			}
			w.begin(t)
			w.agent("a", "say yes", "turns:\n  - when: {last: user}\n    text: \"yes\"\n")
			ctx, cancel := w.timed()
			defer cancel()
			s := w.wait("a", "done")
			for len(s.Waiting) > 0 || s.Status == "running" { // between the answer to the goal and the turn of the message, or in it by now
				if ctx.Err() != nil {
					t.Fatal("nobody reads the message")
				}
				s = w.wait("a", "done")
			}
			if s.Status != "idle" || s.StopReason != "answered" {
				t.Errorf("it is %s, %s: %s", s.Status, s.StopReason, s.StopMessage)
			}
			if n := runs.Load(); n < 2 {
				t.Errorf("%d runs", n)
			}
			for _, e := range w.untilEvent("a", event.TurnFinished) {
				if e.Type == string(event.SessionFailed) {
					t.Error("it was called failed while it went on")
				}
			}
		})
	}
}
