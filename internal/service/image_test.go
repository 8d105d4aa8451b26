package service_test

import (
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// durable waits until a checkpoint is in the store.
func (w *world) durable(ref, ckpt string) {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	sid := id.Session(w.get(ref).ID)
	for e, err := range w.db.Subscribe(ctx, sid, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		switch e.Type {
		case event.CheckpointDurable:
			if d, err := event.DecodeData[event.CheckpointDurableData](e); err != nil {
				w.t.Fatal(err)
			} else if string(d.CheckpointID) == ckpt {
				return
			}
		case event.CheckpointFailed:
			w.t.Fatalf("a checkpoint failed: %s", e.Data)
		}
	}
	w.t.Fatalf("checkpoint %s did not become durable", ckpt)
}

func (w *world) get(ref string) api.Session {
	w.t.Helper()
	s, err := w.svc.GetSession(w.ctx(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// TestMemoryComesBackFromTheStore keeps no image as files: each restore takes it from the store.
func TestMemoryComesBackFromTheStore(t *testing.T) {
	w := &world{noImages: true}
	w.begin(t)
	w.create("one", "")
	w.python("one", "x = 41")
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "one", api.CreateCheckpoint{Message: "loaded"})
	if err != nil {
		t.Fatal(err)
	}
	w.durable("one", ck.ID)
	gone := func(ckpt string) {
		t.Helper()
		if _, err := os.Lstat(filepath.Join(w.dir, "checkpoints", ckpt, "memory")); !os.IsNotExist(err) {
			t.Errorf("its image is still there as files: %v", err)
		}
	}
	gone(ck.ID)
	w.python("one", "x = 99")
	forks, err := w.svc.ForkSession(w.ctx(), "one", api.ForkSession{Checkpoint: "loaded", Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forks.Data {
		w.want(w.python(f.Name, "x"), "41")
	}
	s, err := w.svc.SuspendSession(w.ctx(), "one")
	if err != nil {
		t.Fatal(err)
	}
	w.durable("one", s.Workspace.CheckpointID)
	gone(s.Workspace.CheckpointID)
	w.restart()
	w.want(w.python("one", "x"), "99") // wakes it
	if _, err := w.svc.RollbackSession(w.ctx(), "one", api.RollbackSession{Checkpoint: "loaded"}); err != nil {
		t.Fatal(err)
	}
	w.want(w.python("one", "x"), "41")
	// The forks share their parent's chunks, and need them after it is gone.
	if _, err := w.svc.SuspendSession(w.ctx(), forks.Data[0].ID); err != nil {
		t.Fatal(err)
	}
	asleep := w.get(forks.Data[0].ID).Workspace.CheckpointID
	w.durable(forks.Data[0].ID, asleep)
	if err := w.svc.DeleteSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.want(w.python(forks.Data[0].ID, "x"), "41")
	if v, err := w.svc.VerifySession(w.ctx(), forks.Data[0].ID); err != nil || !v.OK {
		t.Fatalf("verify: %+v, %v", v, err)
	}
}
