package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

func (x taken) memoryDir() string { return filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory") }

func isGone(t *testing.T, name string) bool {
	t.Helper()
	_, err := os.Lstat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err != nil
}

func shed(t *testing.T, s *checkpoint.Store, budget int64) int64 {
	t.Helper()
	freed, err := s.Shed(t.Context(), budget)
	if err != nil {
		t.Fatal(err)
	}
	return freed
}

func TestShedImageIsFetched(t *testing.T) {
	x := take(t)
	if freed := shed(t, x.store, 4<<20); freed != 0 || isGone(t, x.memoryDir()) {
		t.Fatalf("there was room, and it freed %d", freed)
	}
	if freed := shed(t, x.store, 0); freed < 3<<20 || !isGone(t, x.memoryDir()) {
		t.Fatalf("it freed %d", freed)
	}
	if n, err := x.store.Verification().Checkpoint(t.Context(), x.m.ID, x.hash); err != nil || n == 0 {
		t.Fatalf("verified %d, %v", n, err)
	}
	next := checkpoint.NewStore(x.dirs, images(t, x.dirs)) // another process
	for _, s := range []*checkpoint.Store{next, x.store} {
		o, err := s.Open(t.Context(), x.m.ID, x.hash)
		x.whole(t, o, err)
		shed(t, s, 0)
	}
}

func TestShedKeepsWhatIsInUseOrNotStored(t *testing.T) {
	x := take(t)
	o, err := x.store.Open(t.Context(), x.m.ID, x.hash)
	if err != nil {
		t.Fatal(err)
	}
	if shed(t, x.store, 0); isGone(t, o.Image.Dir) {
		t.Fatal("it was in use")
	}
	o.Close()
	o.Close()
	if shed(t, x.store, 0); !isGone(t, o.Image.Dir) {
		t.Fatal("it is not in use any more")
	}
	warm := takeWarm(t)
	if shed(t, warm.store, 0); isGone(t, warm.memoryDir()) {
		t.Fatal("it was the only image")
	}
}

func TestShedTakesWhatWasUsedLongestAgo(t *testing.T) {
	old := take(t)
	young := old.alias(t)
	if err := old.store.Seal(t.Context(), young.m); err != nil {
		t.Fatal(err)
	}
	// Linked files free nothing until the last link goes, so each counts for its share.
	if freed := shed(t, old.store, 2<<20); freed != 1<<20+1<<19+2048 || !isGone(t, old.memoryDir()) || isGone(t, young.memoryDir()) {
		t.Fatalf("it freed %d", freed)
	}
}

// alias returns a checkpoint with the memory of x.
func (x taken) alias(t *testing.T) taken {
	t.Helper()
	y := x
	y.m.ID = id.NewCheckpoint()
	d, err := x.store.Begin(y.m)
	if err != nil {
		t.Fatal(err)
	}
	if y.hash, err = d.Alias(t.Context(), x.m); err != nil {
		t.Fatal(err)
	}
	y.m = d.Manifest
	return y
}

func TestAliasOfAShedImage(t *testing.T) {
	x := take(t)
	shed(t, x.store, 0)
	y := x.alias(t)
	if err := x.store.Delete(t.Context(), x.m.ID); err != nil {
		t.Fatal(err)
	}
	if err := x.store.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := x.store.Seal(t.Context(), y.m); err != nil {
		t.Fatal(err)
	}
	o, err := x.store.Open(t.Context(), y.m.ID, y.hash)
	y.whole(t, o, err)
}

func TestDeletedImagesAreCollected(t *testing.T) {
	x := take(t)
	if err := x.store.Delete(t.Context(), x.m.ID); err != nil {
		t.Fatal(err)
	}
	if err := x.store.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(x.dirs.Root, "images", "*", "*", "*")); err != nil || len(left) > 0 {
		t.Fatalf("%v is left, %v", left, err)
	}
	y := takeWarm(t)
	seal(t, y)
	if err := y.store.DestroyLineage(t.Context(), y.m.SessionID); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"images", "keys"} {
		if left, err := os.ReadDir(filepath.Join(y.dirs.Root, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", dir, left, err)
		}
	}
}

// TestDamageInBothImagesIsAnError flips a byte of each object of the store of images, after the files have gone.
func TestDamageInBothImagesIsAnError(t *testing.T) {
	for _, what := range []string{"packs", "manifests"} {
		x := take(t)
		objects, err := filepath.Glob(filepath.Join(x.dirs.Root, "images", "*", what, "*"))
		if err != nil || len(objects) == 0 {
			t.Fatal(objects, err)
		}
		for _, o := range objects {
			flip(t, o, 0.5)
		}
		s := checkpoint.NewStore(x.dirs, images(t, x.dirs))
		o, err := s.Open(t.Context(), x.m.ID, x.hash)
		if err != nil {
			t.Fatalf("the files are whole: %v", err)
		}
		o.Close()
		if _, err := s.Verification().Checkpoint(t.Context(), x.m.ID, x.hash); errdefs.CodeOf(err) != "checkpoint_corrupt" {
			t.Errorf("%s: verify says %v", what, err)
		}
		shed(t, s, 0)
		if _, err := s.Open(t.Context(), x.m.ID, x.hash); errdefs.CodeOf(err) != "checkpoint_corrupt" {
			t.Errorf("%s: open says %v", what, err)
		}
		if left, err := filepath.Glob(filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory.new*")); err != nil || len(left) > 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
}

// TestUnsealLeavesNothingOfADeletedCheckpoint seals one that is deleted at the same time, with its session or without.
func TestUnsealLeavesNothingOfADeletedCheckpoint(t *testing.T) {
	for _, session := range []bool{true, false} {
		x := take(t)
		if err := x.dirs.Trash(x.dirs.Checkpoint(x.m.ID)); err != nil { // the deletion looked before the image was stored
			t.Fatal(err)
		}
		if err := x.store.Unseal(t.Context(), x.m, func(id.Session) (bool, error) { return session, nil }); err != nil {
			t.Fatal(err)
		}
		if err := x.store.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(filepath.Join(x.dirs.Root, "images")); err != nil || len(left) > 0 {
			t.Errorf("session there %v: %v is left, %v", session, left, err)
		}
		if keys, err := os.ReadDir(filepath.Join(x.dirs.Root, "keys")); err != nil || len(keys) > 0 != session {
			t.Errorf("session there %v: keys %v, %v", session, keys, err)
		}
	}
}
