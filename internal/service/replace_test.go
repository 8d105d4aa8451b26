package service_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/process"
)

// stubbornDriver makes sandboxes of which one cannot be ended.
type stubbornDriver struct {
	sandbox.Driver
	which *atomic.Value // its id; "" for none
}

func (d stubbornDriver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := d.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return stubbornSandbox{sb, d.which}, nil
}

type stubbornSandbox struct {
	sandbox.Sandbox
	which *atomic.Value
}

var errStubborn = errors.New("it does not end")

func (s stubbornSandbox) Destroy(ctx context.Context) error {
	if s.which.Load() == string(s.ID()) {
		return errStubborn
	}
	return s.Sandbox.Destroy(ctx)
}

// TestS4_RollbackBesideASandboxThatDoesNotEndChangesNothing: as long as the old sandbox may write, its files are no checkpoint. The rollback
// is given up, and what runs runs on.
func TestS4_RollbackBesideASandboxThatDoesNotEndChangesNothing(t *testing.T) {
	which := &atomic.Value{}
	which.Store("")
	w := &world{}
	w.wrap = func(d sandbox.Driver) sandbox.Driver { return stubbornDriver{d, which} }
	w.begin(t)
	s := w.create("a", process.Name)
	w.sh("a", "echo one > ~/file")
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	w.sh("a", "echo two > ~/file")
	x := w.start("a", api.StartExec{Argv: []string{"bash", "-c", "until [ -e ~/go ]; do sleep 0.05; done; echo gone"}})
	which.Store(s.Workspace.SandboxID)
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: ck.ID}); !errors.Is(err, errStubborn) {
		t.Fatalf("the rollback says %v", err)
	}
	if now := w.state("a", "running"); now.Workspace.SandboxID != s.Workspace.SandboxID {
		t.Errorf("it runs in %s now", now.Workspace.SandboxID)
	}
	run, err := os.ReadDir(filepath.Join(w.dir, "run"))
	gens, gerr := filepath.Glob(filepath.Join(w.dir, "sessions", s.ID, "workspace", "[0-9]*"))
	if err != nil || gerr != nil || len(run) != 1 || len(gens) != 1 {
		t.Errorf("there are sandboxes %v and generations %v; %v, %v", run, gens, err, gerr)
	}
	w.want(w.sh("a", "cat ~/file; touch ~/go"), "two")
	if x, out := w.finish("a", x.ID); x.ExitCode == nil || *x.ExitCode != 0 || out != "gone\n" {
		t.Errorf("what ran: %+v, %q", x, out)
	}
	list, err := w.svc.ListEvents(w.ctx(), "a", 0, 500)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Data {
		if e.Type == string(event.SessionRolledBack) {
			t.Error("the log tells of a rollback")
		}
	}
	which.Store("")
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: ck.ID}); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat ~/file"), "one")
	if _, err := w.svc.UndoSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat ~/file"), "two")
}
