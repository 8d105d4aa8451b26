package model_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

type fakeClock struct{ slept []time.Duration }

func (*fakeClock) Now() time.Time { return time.Unix(0, 0) }

func (c *fakeClock) Sleep(ctx context.Context, d time.Duration) error {
	c.slept = append(c.slept, d)
	return ctx.Err()
}

func TestRetry(t *testing.T) {
	limited := model.NewError(model.RateLimited, nil, "slow")
	limited.RetryAfter = 7 * time.Second
	greedy := model.NewError(model.RateLimited, nil, "slower")
	greedy.RetryAfter = time.Hour
	over := model.NewError(model.Overloaded, nil, "busy")
	policy := model.Policy{Attempts: 4, Base: time.Second, Max: 3 * time.Second, MaxRetryAfter: time.Minute}
	for name, tt := range map[string]struct {
		errs   []error
		asked  int
		least  []time.Duration
		failed bool
	}{
		"honours retry-after":   {[]error{limited, nil}, 2, []time.Duration{7 * time.Second}, false},
		"backs off, up to max":  {[]error{over, over, over, nil}, 4, []time.Duration{time.Second / 2, time.Second, 1500 * time.Millisecond}, false},
		"gives up":              {[]error{over, over, over, over}, 4, []time.Duration{0, 0, 0}, true},
		"not what stays wrong":  {[]error{model.NewError(model.Auth, nil, "key")}, 1, nil, true},
		"not for too long":      {[]error{greedy}, 1, nil, true},
		"success at once":       {[]error{nil}, 1, nil, false},
		"network is tried anew": {[]error{model.NewError(model.Network, nil, "cut"), nil}, 2, []time.Duration{0}, false},
	} {
		clk := &fakeClock{}
		asked := 0
		_, err := model.Retry(t.Context(), clk, policy, model.Attempt{}, func(context.Context, int) (model.Response, error) {
			asked++
			return model.Response{}, tt.errs[asked-1]
		})
		if asked != tt.asked || (err != nil) != tt.failed || len(clk.slept) != len(tt.least) {
			t.Errorf("%s: asked %d times, slept %v, %v", name, asked, clk.slept, err)
			continue
		}
		for i, d := range clk.slept {
			if d < tt.least[i] || d > tt.least[i]*2+3*time.Second {
				t.Errorf("%s: slept %v", name, clk.slept)
			}
		}
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0.5": 500 * time.Millisecond, "-1": 0, "": 0, "soon": 0,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := model.RetryAfter(http.Header{"Retry-After": {v}}, now); got != want {
			t.Errorf("%q: %s, want %s", v, got, want)
		}
	}
}

func TestCheckHistoryRefuses(t *testing.T) {
	user := model.Message{Role: model.User, Text: "hi"}
	call := func(ids ...string) model.Message {
		m := model.Message{Role: model.Assistant}
		for _, id := range ids {
			m.ToolCalls = append(m.ToolCalls, event.ToolCall{CallID: id, Name: "run", Arguments: []byte(`{}`)})
		}
		return m
	}
	result := func(id string) model.Message { return model.Message{Role: model.Tool, CallID: id, Text: "r"} }
	good := [][]model.Message{
		{user}, {{Role: model.System, Text: "s"}, user, call("a", "b"), result("b"), result("a")},
		{user, call("a"), result("a"), user, call("a"), result("a")},
	}
	bad := [][]model.Message{
		{}, {call("a"), result("a")}, {user, call("a")}, {user, call("a"), user, result("a")}, {user, result("a")},
		{user, call("a"), result("a"), result("a")}, {user, call("a", "a"), result("a"), result("a")}, {user, call("a", "b"), result("a"), user},
		{user, {Role: model.System, Text: "s"}}, {user, {Role: model.Assistant}, user}, {user, {Role: model.Assistant, Text: "x"}}, {{Role: model.User, Text: " "}},
		{user, {Role: model.Assistant, ToolCalls: []event.ToolCall{{CallID: "a", Name: "n", Arguments: []byte(`[]`)}}}, result("a")},
	}
	for i, m := range good {
		if err := model.CheckHistory(m); err != nil {
			t.Errorf("good %d: %v", i, err)
		}
	}
	for i, m := range bad {
		if err := model.CheckHistory(m); err == nil {
			t.Errorf("bad %d passes", i)
		}
	}
}

func TestRegistryAndPrices(t *testing.T) {
	r := model.Registry{"scripted": func(_ context.Context, name string) (model.Provider, error) {
		if name != "/a/b:c.yaml" {
			t.Errorf("name %q", name)
		}
		return nil, nil
	}}
	if _, err := r.Open(t.Context(), "scripted:/a/b:c.yaml"); err != nil {
		t.Error(err)
	}
	for _, spec := range []string{"gpt-5", "nobody/x", "", "scripted:"} {
		if _, err := r.Open(t.Context(), spec); errdefs.CodeOf(err) != "model_unknown" || errdefs.HintOf(err) == "" {
			t.Errorf("%q: %v", spec, err)
		}
	}
	p := model.Prices{"m": {Price: model.Price{Input: 3_000_000, Cached: 300_000, Output: 15_000_000}}}
	costs := []int64{p.Cost("m", event.Usage{Input: 1000, Cached: 600, Output: 10}), p.Cost("other", event.Usage{Input: 5})}
	if !slices.Equal(costs, []int64{1530, 0}) {
		t.Errorf("costs %v", costs)
	}
}
