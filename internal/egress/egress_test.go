package egress

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

type fakeClock struct{ now time.Time }

func (c *fakeClock) Now() time.Time                             { return c.now }
func (c *fakeClock) Sleep(context.Context, time.Duration) error { return nil }

func TestTheZeroVerdictRefuses(t *testing.T) {
	if (Verdict{}).Allow || Refuse(t.Context(), Flow{}).Allow {
		t.Error("allowed")
	}
}

func TestASandboxCannotFillTheLog(t *testing.T) {
	var out bytes.Buffer
	clock := &fakeClock{now: time.Unix(1_000_000, 0)}
	decide := Logged(Refuse, slog.New(slog.NewTextHandler(&out, nil)), clock)
	for range 10 * LogBurst {
		decide(t.Context(), Flow{Proto: TCP})
	}
	if got := strings.Count(out.String(), "\n"); got != LogBurst {
		t.Errorf("%d lines, want %d", got, LogBurst)
	}
	out.Reset()
	clock.now = clock.now.Add(LogEvery)
	decide(t.Context(), Flow{Proto: UDP})
	if !strings.Contains(out.String(), "unlogged_before=180") {
		t.Errorf("the silence is not accounted for: %s", out.String())
	}
}

func TestLoggedKeepsAllowedFlowsQuiet(t *testing.T) {
	var out bytes.Buffer
	allow := func(context.Context, Flow) Verdict { return Verdict{Allow: true} }
	if v := Logged(allow, slog.New(slog.NewTextHandler(&out, nil)), &fakeClock{})(t.Context(), Flow{}); !v.Allow || out.Len() > 0 {
		t.Errorf("%+v, %q", v, out.String())
	}
}
