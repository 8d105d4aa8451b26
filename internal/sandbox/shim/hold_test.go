package shim

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/sandbox"
)

// spoolWithRunning makes a spool that holds one running command.
func spoolWithRunning(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s, err := spool.Open(dir, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, _, err := s.Create(sandbox.ExecSpec{ID: "x", Kind: sandbox.ExecProcess, Argv: []string{"sleep"}}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func stored(t *testing.T, dir string) sandbox.ExecState {
	t.Helper()
	s, err := spool.Open(dir, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.List()[0].State
}

func TestReadingForTheDeadWritesNothing(t *testing.T) {
	dir := spoolWithRunning(t)
	c := newClient(t.TempDir(), Config{Spec: sandbox.Spec{SpoolDir: dir}}) // nobody holds its lock
	st, err := c.Execs().Status(t.Context(), "x")
	if err != nil || st.State != sandbox.ExecLost || st.Cause == "" {
		t.Errorf("the dead sandbox's command: %+v, %v", st, err)
	}
	list, err := c.Execs().List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != sandbox.ExecLost {
		t.Errorf("the dead sandbox's commands: %+v, %v", list, err)
	}
	if st, err := c.Execs().Wait(t.Context(), "x"); err != nil || st.State != sandbox.ExecLost {
		t.Errorf("waiting for the dead: %+v, %v", st, err)
	}
	if got := stored(t, dir); got != sandbox.ExecRunning {
		t.Errorf("reading has made it %s", got)
	}
}

func TestMarkLostLeavesASpoolThatAnotherShimHolds(t *testing.T) {
	dir := spoolWithRunning(t)
	hold, err := holdSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := markLost(dir, "the plug"); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, dir); got != sandbox.ExecRunning {
		t.Errorf("a command of the successor is %s", got)
	}
	hold.Close()
	if err := markLost(dir, "the plug"); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, dir); got != sandbox.ExecLost {
		t.Errorf("a command of nobody is %s", got)
	}
}

// A shim that is alive and cannot be reached, as by a daemon that has no file handle left, is no dead one.
func TestWaitDoesNotTakeSilenceForDeath(t *testing.T) {
	dir, state := spoolWithRunning(t), t.TempDir()
	lock, err := openLock(state)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	c := newClient(state, Config{Spec: sandbox.Spec{SpoolDir: dir}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if st, err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for the sandbox: %+v, %v", st, err)
	}
	if st, err := c.Execs().Wait(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for the command: %+v, %v", st, err)
	}
	ended := make(chan sandbox.ExecStatus, 1)
	go func() {
		st, err := c.Execs().Wait(t.Context(), "x")
		if err != nil {
			t.Error(err)
		}
		ended <- st
	}()
	lock.Close()
	if st := <-ended; st.State != sandbox.ExecLost {
		t.Errorf("after its death: %+v", st)
	}
}
