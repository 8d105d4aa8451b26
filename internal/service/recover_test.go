package service_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/process"
)

// TestL1_WhatARollbackLeftGoesWithItsJournal: a daemon died when the log had the rollback, but the old sandbox had not ended and the journal
// was there still. Nobody owns that sandbox any more. It is here that of a session whose deletion it has outlived.
func TestL1_WhatARollbackLeftGoesWithItsJournal(t *testing.T) {
	which := &atomic.Value{}
	which.Store("")
	w := &world{}
	w.wrap = func(d sandbox.Driver) sandbox.Driver { return stubbornDriver{d, which} }
	w.begin(t)
	a, b := w.create("a", process.Name), w.create("b", process.Name)
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	which.Store(b.Workspace.SandboxID)
	if err := w.svc.DeleteSession(w.ctx(), "b"); !errors.Is(err, errStubborn) {
		t.Fatalf("the deletion says %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "run", b.Workspace.SandboxID)); err != nil {
		t.Fatal(err)
	}
	which.Store("")
	w.close()
	w.put(filepath.Join(w.dir, "sessions", a.ID, "journal.json"), fmt.Sprintf(
		`{"op": "rollback", "created": {"checkpoint_id": %q}, "sandbox": %q, "new_sandbox": %q}`, ck.ID, b.Workspace.SandboxID, a.Workspace.SandboxID))
	w.open()
	w.isGone("run", b.Workspace.SandboxID)
	w.isGone("sessions", a.ID, "journal.json")
	if now := w.state("a", "running"); now.Workspace.SandboxID != a.Workspace.SandboxID {
		t.Errorf("it runs in %s now", now.Workspace.SandboxID)
	}
	w.want(w.sh("a", "echo alive"), "alive")
}

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

// silentDriver does not find a sandbox again until it may.
type silentDriver struct {
	sandbox.Driver
	which *atomic.Value // of the state directory; "" for none
	may   chan struct{}
}

func (d silentDriver) Recover(ctx context.Context, dir string) (sandbox.Sandbox, error) {
	if filepath.Base(dir) == d.which.Load() {
		select {
		case <-d.may:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return d.Driver.Recover(ctx, dir)
}

// TestS3_ASilentSandboxDelaysNobody starts a daemon one of whose sandboxes does not answer. The others are there meanwhile, and it is when it answers.
func TestS3_ASilentSandboxDelaysNobody(t *testing.T) {
	d := silentDriver{which: &atomic.Value{}, may: make(chan struct{})}
	d.which.Store("")
	w := &world{}
	w.wrap = func(real sandbox.Driver) sandbox.Driver { d.Driver = real; return d }
	w.begin(t)
	a := w.create("a", process.Name)
	w.create("b", process.Name)
	w.sh("a", "echo kept > ~/file")
	w.close()
	d.which.Store(a.Workspace.SandboxID)
	answers := sync.OnceFunc(func() { close(d.may) })
	defer time.AfterFunc(patience, func() { t.Error("the start waits for it"); answers() }).Stop()
	w.open()
	w.want(w.sh("b", "echo alive"), "alive")
	answers()
	w.want(w.sh("a", "cat ~/file"), "kept")
	if now := w.state("a", "running"); now.Workspace.SandboxID != a.Workspace.SandboxID {
		t.Errorf("it runs in %s now", now.Workspace.SandboxID)
	}
}
