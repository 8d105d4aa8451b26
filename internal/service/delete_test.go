package service_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

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
