package service_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/process"
)

// isGone checks that there is no file or directory of a name in the data directory.
func (w *world) isGone(name ...string) {
	w.t.Helper()
	path := filepath.Join(append([]string{w.dir}, name...)...)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		w.t.Errorf("%s is still there, %v", path, err)
	}
}

// TestL1_WhoWaitsBringsNothingBack deletes a session while somebody waits for a command of it: he learns of the deletion, and his look at
// what the command may have left makes no directory.
func TestL1_WhoWaitsBringsNothingBack(t *testing.T) {
	waits := make(chan struct{}, 10)
	w := &world{}
	w.wrap = func(d sandbox.Driver) sandbox.Driver { return toldDriver{d, waits} }
	w.begin(t)
	s := w.create("s", process.Name)
	x := w.start("s", api.StartExec{Argv: []string{"sleep", "1000"}})
	<-waits // the service's own
	ctx, cancel := w.timed()
	defer cancel()
	waited := make(chan error, 1)
	go func() {
		_, err := w.svc.WaitExec(ctx, s.ID, id.Exec(x.ID))
		waited <- err
	}()
	<-waits
	if err := w.svc.DeleteSession(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; errdefs.CodeOf(err) != event.CodeSessionNotFound {
		t.Errorf("the one who waited: %v", err)
	}
	w.isGone("sessions", s.ID)
}

// toldDriver says when somebody begins to wait for a command.
type toldDriver struct {
	sandbox.Driver
	waits chan struct{}
}

func (d toldDriver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := d.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return toldSandbox{sb, d.waits}, nil
}

type toldSandbox struct {
	sandbox.Sandbox
	waits chan struct{}
}

func (s toldSandbox) Execs() sandbox.Execs { return toldExecs{s.Sandbox.Execs(), s.waits} }

type toldExecs struct {
	sandbox.Execs
	waits chan struct{}
}

func (e toldExecs) Wait(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	e.waits <- struct{}{}
	return e.Execs.Wait(ctx, exec)
}

// TestL1_ArtifactsStayForForks: a fork's transcript names what its parent has stored.
func TestL1_ArtifactsStayForForks(t *testing.T) {
	w := newWorld(t)
	a, b := w.create("a", process.Name), w.create("b", process.Name)
	name := id.NewArtifact()
	dir := filepath.Join(w.dir, "sessions", a.ID, "artifacts")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.put(filepath.Join(dir, string(name)), "whole")
	for parent, child := range map[string]string{"a": "kid", "b": "other"} {
		if _, err := w.svc.ForkSession(w.ctx(), parent, api.ForkSession{Name: child}); err != nil {
			t.Fatal(err)
		}
		if err := w.svc.DeleteSession(w.ctx(), parent); err != nil {
			t.Fatal(err)
		}
	}
	read := func() {
		t.Helper()
		f, err := w.svc.Artifact(w.ctx(), "kid", name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if b, err := io.ReadAll(f); err != nil || string(b) != "whole" {
			t.Errorf("%q, %v", b, err)
		}
	}
	read()
	for _, left := range []string{"workspace", "spool"} {
		w.isGone("sessions", a.ID, left)
	}
	w.isGone("sessions", b.ID) // which had none
	w.close()
	w.put(filepath.Join(w.dir, "sessions", a.ID, "journal.json"), "{}") // as after a crash
	w.open()
	read()
	w.isGone("sessions", a.ID, "journal.json")
	if err := w.svc.DeleteSession(w.ctx(), "kid"); err != nil {
		t.Fatal(err)
	}
	w.isGone("sessions", a.ID)
}

// TestL1_ALogThatCannotBeRemovedKeepsNothingElse: the deletion of a session is complete once the store has noted it. That its log cannot be
// taken away yet keeps neither its sandbox running nor its checkpoints; the log goes at the next start.
func TestL1_ALogThatCannotBeRemovedKeepsNothingElse(t *testing.T) {
	w := newWorld(t)
	s := w.create("a", process.Name)
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "perdure.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	exec := func(stmt string) {
		t.Helper()
		if _, err := raw.ExecContext(w.ctx(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TRIGGER keep BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
	err = w.svc.DeleteSession(w.ctx(), "a")
	exec("DROP TRIGGER keep")
	if err != nil {
		t.Fatal(err)
	}
	w.isGone("run", s.Workspace.SandboxID)
	w.isGone("sessions", s.ID)
	w.isGone("checkpoints", ck.ID)
	if _, err := w.svc.GetSession(w.ctx(), s.ID); errdefs.CodeOf(err) != event.CodeSessionNotFound {
		t.Errorf("it is there: %v", err)
	}
	if _, err := w.db.Read(w.ctx(), id.Session(s.ID), 0, 1); err != nil {
		t.Errorf("the log could be removed: %v", err)
	}
	w.restart()
	if _, err := w.db.Read(w.ctx(), id.Session(s.ID), 0, 1); errdefs.CodeOf(err) != event.CodeSessionNotFound {
		t.Errorf("its log is still there: %v", err)
	}
}

// TestL1_TheStartOfAForkIsForkedWithoutItsParent forks the point that a fork started from, after its parent was deleted, while a command runs
// there, which goes on.
func TestL1_TheStartOfAForkIsForkedWithoutItsParent(t *testing.T) {
	w := newWorld(t)
	parent := w.create("parent", "")
	w.python("parent", "x = 41")
	w.start("parent", api.StartExec{ID: "half", Argv: []string{"bash", "-c", "echo one; until [ -e /root/go ]; do sleep 0.05; done; echo two"}})
	ctx, cancel := w.timed()
	defer cancel()
	for w.output("parent", "half") == "" {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it says nothing")
		}
	}
	c, err := w.svc.CreateCheckpoint(ctx, "parent", api.CreateCheckpoint{Message: "start"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.ForkSession(ctx, "parent", api.ForkSession{Checkpoint: c.ID, Name: "kid"}); err != nil {
		t.Fatal(err)
	}
	w.python("kid", "x = 7")
	if err := w.svc.DeleteSession(ctx, "parent"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.ForkSession(ctx, "kid", api.ForkSession{Checkpoint: "start", Name: "again"}); err != nil {
		t.Fatal(err)
	}
	w.isGone("sessions", parent.ID)
	w.want(w.python("again", "x"), "41")
	w.sh("again", "touch /root/go")
	x, out := w.finish("again", "half")
	if x.ExitCode == nil || *x.ExitCode != 0 || !strings.HasSuffix(out, "two\n") {
		t.Errorf("what ran: %+v, %q", x, out)
	}
	if err := w.svc.DeleteSession(ctx, "kid"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.ForkSession(ctx, "again", api.ForkSession{Checkpoint: c.ID, Name: "third"}); err != nil {
		t.Errorf("the start is kept for the second fork: %v", err)
	}
}
