package service_test

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// TestX8_ACheckpointOutlastsAFullDisk takes a checkpoint while there is no room to store its memory. It stays what it is, and becomes durable
// when there is: at the next attempt, of this daemon or of the next.
func TestX8_ACheckpointOutlastsAFullDisk(t *testing.T) {
	tried := make(chan struct{}, 100)
	w := &world{step: func(point string) {
		if point == "checkpoint.unsealed" {
			tried <- struct{}{}
		}
	}}
	w.begin(t)
	images := filepath.Join(w.dir, "images")
	if err := unix.Mount("tmpfs", images, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		if !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
		t.Skip("only root can mount a small disk to fill")
	}
	t.Cleanup(func() {
		if err := unix.Unmount(images, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	w.create("a", "")
	w.python("a", "x = 41")
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := w.timed()
	defer cancel()
	notYet := func() {
		t.Helper()
		select {
		case <-tried:
		case <-ctx.Done():
			t.Fatal("nobody tried to make it durable")
		}
		if c, err := w.svc.GetCheckpoint(ctx, id.Checkpoint(ck.ID)); err != nil || c.State != string(session.CheckpointWarm) {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	notYet()
	w.python("a", "x = 7")
	if _, err := w.svc.RollbackSession(ctx, "a", api.RollbackSession{Checkpoint: ck.ID}); err != nil {
		t.Fatal(err)
	}
	w.close()
	for len(tried) > 0 {
		<-tried
	}
	w.open()
	notYet()
	if err := unix.Mount("", images, "", unix.MS_REMOUNT, "size=2g"); err != nil {
		t.Fatal(err)
	}
	w.durable("a", ck.ID)
	if _, err := w.svc.UndoSession(ctx, "a"); err != nil { // the rollback took a checkpoint too
		t.Fatal(err)
	}
	w.want(w.python("a", "x"), "7")
	if err := w.svc.DeleteSession(ctx, "a"); err != nil {
		t.Fatal(err)
	}
}
