package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/sandbox/gvisor"
)

// stoppedClock moves only when told.
type stoppedClock struct {
	clock.System
	now time.Time
}

func (c *stoppedClock) Now() time.Time { return c.now }

// TestCapabilitiesAreAskedOnce counts how often the engine is asked: it takes a process, and every resume and fork needs to know.
func TestCapabilitiesAreAskedOnce(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	engine, guest := filepath.Join(dir, "perdure-engine"), filepath.Join(dir, "perdure-guest")
	install := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	script := func(version, tap string) string {
		return fmt.Sprintf("#!/bin/sh\necho >> %s\necho '{\"Version\":%q,\"TAP\":%q}'\n", count, version, tap)
	}
	install(guest, "")
	clk := &stoppedClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	d := gvisor.New(gvisor.Options{Engine: engine, Guest: guest, Cache: dir, Clock: clk})
	check := func(ctx context.Context, version string, network bool, asked int64) {
		t.Helper()
		c := d.Capabilities(ctx)
		if c.Version != version || c.Network != network {
			t.Errorf("got %+v, want version %s, network %t", c, version, network)
		}
		info, err := os.Stat(count)
		if err != nil || info.Size() != asked {
			t.Errorf("asked %v times (%v), want %d", info, err, asked)
		}
	}

	install(engine, script("one", "no device"))
	check(t.Context(), "one", false, 1)
	check(t.Context(), "one", false, 1)
	clk.now = clk.now.Add(time.Minute) // what was missing may be there by now
	check(t.Context(), "one", false, 2)

	install(engine, script("two", "")) // another binary
	check(t.Context(), "two", true, 3)
	clk.now = clk.now.Add(time.Hour)
	check(t.Context(), "two", true, 3)
}

// TestHintFollowsTheCause: who lacks a binary is told to build it, and not to become root.
func TestHintFollowsTheCause(t *testing.T) {
	dir := t.TempDir()
	engine, guest := filepath.Join(dir, "perdure-engine"), filepath.Join(dir, "perdure-guest")
	d := gvisor.New(gvisor.Options{Engine: engine, Guest: guest, Cache: dir})
	check := func(missing, hint string) {
		t.Helper()
		c := d.Capabilities(t.Context())
		if c.Available || len(c.Missing) == 0 || !strings.Contains(c.Missing[0], missing) || !strings.Contains(c.Hint, hint) || strings.Contains(c.Hint, "root") {
			t.Errorf("got %+v, want %q missing and the hint %q", c, missing, hint)
		}
	}
	check("perdure-engine", "go build")
	if err := os.WriteFile(engine, []byte("#!/bin/sh\necho '{\"Version\":\"one\"}'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	check("perdure-guest", "go build")
}
