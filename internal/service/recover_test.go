package service_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// watchedHarness says when a session is driven.
type watchedHarness struct {
	agent.Harness
	run func(id.Session)
}

func (h watchedHarness) Run(ctx context.Context, host agent.Host) error {
	h.run(host.Session())
	return h.Harness.Run(ctx, host)
}

// TestS3_NobodyWorksWhileOrphansAreRemoved: what a harness makes while a daemon starts, such as the sandbox of a workspace that it wakes,
// must not be taken for what an earlier one left.
func TestS3_NobodyWorksWhileOrphansAreRemoved(t *testing.T) {
	w := newWorld(t)
	a := w.agent("one", "do it", slowScript)
	w.untilEvent("one", event.ToolStarted)
	w.close()
	const many = 500 // so that removing them takes longer than starting a harness
	orphan := func(i int) string { return filepath.Join(w.dir, "run", fmt.Sprintf("sbx_zz%03d", i)) }
	for i := range many {
		if err := os.Mkdir(orphan(i), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var early atomic.Int64
	w.harness = func(h agent.Harness) agent.Harness {
		return watchedHarness{h, func(s id.Session) {
			if _, err := os.Stat(orphan(many - 1)); err == nil && string(s) == a.ID {
				early.Add(1)
			}
		}}
	}
	w.open()
	w.collected("one")
	if early.Load() > 0 {
		t.Error("the session was driven before the orphans were removed")
	}
}
