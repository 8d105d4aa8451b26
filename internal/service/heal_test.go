package service_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/sandbox/process"
)

// failing is a log that refuses the next append with an event of one type, once, as a full disk does.
type failing struct {
	event.Log
	next   *atomic.Value // event.Type; "" for none
	failed chan struct{}
}

var errAppend = errors.New("no space left on device")

func (f failing) Append(ctx context.Context, a event.Append) ([]event.Event, error) {
	want := f.next.Load().(event.Type)
	if slices.ContainsFunc(a.Events, func(d event.Draft) bool { return d.Type == want }) && f.next.CompareAndSwap(want, event.Type("")) {
		close(f.failed)
		return nil, errAppend
	}
	return f.Log.Append(ctx, a)
}

// failingWorld returns a world, and what makes the next append of a type fail. The channel is closed when it has.
func failingWorld(t *testing.T) (w *world, fail func(event.Type) <-chan struct{}) {
	t.Helper()
	f := failing{next: &atomic.Value{}, failed: make(chan struct{})}
	f.next.Store(event.Type(""))
	w = &world{wrapLog: func(l event.Log) event.Log { f.Log = l; return f }}
	w.begin(t)
	return w, func(typ event.Type) <-chan struct{} { f.next.Store(typ); return f.failed }
}

// TestS4_RollbackThatCannotBeRecordedIsFinished: when the old sandbox is gone and the log cannot take what tells of it, what was there
// before is not lost, and the session goes on at the checkpoint.
func TestS4_RollbackThatCannotBeRecordedIsFinished(t *testing.T) {
	w, fail := failingWorld(t)
	w.create("a", process.Name)
	w.sh("a", "echo one > ~/file")
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	w.sh("a", "echo two > ~/file")
	fail(event.SessionRolledBack)
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: ck.ID}); !errors.Is(err, errAppend) {
		t.Fatalf("the rollback says %v", err)
	}
	w.want(w.sh("a", "cat ~/file"), "one")
	list, err := w.svc.ListCheckpoints(w.ctx(), "a", api.Page{Limit: 10})
	if err != nil || len(list.Data) != 2 {
		t.Fatalf("checkpoints: %+v, %v", list.Data, err)
	}
	w.durable("a", list.Data[1].ID)
	if _, err := w.svc.UndoSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat ~/file"), "two")
}

// TestS3_DeathThatCannotBeRecordedIsNoticedLater: a dead sandbox does not stay the session's because the log was full when it died.
func TestS3_DeathThatCannotBeRecordedIsNoticedLater(t *testing.T) {
	w, fail := failingWorld(t)
	s := w.create("a", "")
	w.sh("a", "echo kept > /root/file")
	failed := fail(event.WorkspaceLost)
	w.killSandbox(s.Workspace.SandboxID)
	<-failed
	w.want(w.sh("a", "cat /root/file"), "kept")
	if s := w.state("a", "running"); s.ResumeReport == nil || len(s.ResumeReport.Lost) == 0 {
		t.Fatalf("resume report: %+v", s.ResumeReport)
	}
}
