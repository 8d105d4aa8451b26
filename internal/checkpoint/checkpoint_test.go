package checkpoint_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/snapshot/disk"
	"perdure.dev/perdure/internal/workspace"
)

// taken is a committed checkpoint with memory and one layer.
type taken struct {
	dirs  workspace.Dirs
	store *checkpoint.Store
	m     checkpoint.Manifest
	hash  string
}

// take returns a durable one.
func take(t *testing.T) taken {
	t.Helper()
	x := takeWarm(t)
	seal(t, x)
	return x
}

func seal(t *testing.T, x taken) {
	t.Helper()
	if err := x.store.Seal(t.Context(), x.m); err != nil {
		t.Fatal(err)
	}
}

func takeWarm(t *testing.T) taken {
	t.Helper()
	x := taken{dirs: workspace.Dirs{Root: t.TempDir()}}
	if err := x.dirs.Make(); err != nil {
		t.Fatal(err)
	}
	x.store = checkpoint.NewStore(x.dirs, images(t, x.dirs))
	l := id.NewLayer()
	if err := os.MkdirAll(filepath.Join(x.dirs.LayerFS(l), "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(x.dirs.LayerFS(l), "root", "file"), []byte("content"))
	d, err := x.store.Begin(checkpoint.Manifest{
		ID: id.NewCheckpoint(), SessionID: "sess_x", Kind: event.KindUser, CreatedAt: time.Now().UTC(), Layers: []id.Layer{l},
		Environment: checkpoint.Environment{Driver: "test", Version: "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.store.Open(t.Context(), d.Manifest.ID, ""); errdefs.CodeOf(err) != "checkpoint_missing" {
		t.Fatalf("before its manifest is written it opens with %v", err)
	}
	memory := make([]byte, 3<<20)
	rand.Read(memory)
	write(t, filepath.Join(d.MemoryDir(), "pages"), memory)
	write(t, filepath.Join(d.MemoryDir(), "state"), []byte("state"))
	d.Cut(event.Head{Seq: 7, Hash: "abc"})
	if x.hash, err = d.Commit(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	x.m = d.Manifest
	return x
}

// images opens the store of images of a data directory, as each process does.
func images(t *testing.T, dirs workspace.Dirs) *snapshot.Store {
	t.Helper()
	bucket, err := disk.Open(filepath.Join(dirs.Root, "images"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := disk.OpenKeys(filepath.Join(dirs.Root, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.New(bucket, keys, 2)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCommittedCheckpointOpens(t *testing.T) {
	x := take(t)
	for _, s := range []*checkpoint.Store{x.store, checkpoint.NewStore(x.dirs, images(t, x.dirs))} { // this process, and the next
		o, err := s.Open(t.Context(), x.m.ID, x.hash)
		if err != nil {
			t.Fatal(err)
		}
		m, image := o.Manifest, o.Image
		o.Close()
		if m.CutSeq != 7 || m.CutHash != "abc" || image.Bytes != 3<<20+5 || image.Driver != "test" {
			t.Fatalf("%+v %+v", m, image)
		}
		if n, err := s.Verification().Checkpoint(t.Context(), x.m.ID, x.hash); err != nil || n != 3<<20+5+7 {
			t.Fatalf("verified %d bytes, %v", n, err)
		}
	}
}

// TestS6_EveryFlippedByteIsNoticed changes one byte of each file of a checkpoint, at its beginning, middle and end.
func TestS6_EveryFlippedByteIsNoticed(t *testing.T) {
	for _, where := range []string{"manifest", "memory/pages", "memory/state", "layer"} {
		for _, part := range []float64{0, 0.5, 0.999999} {
			for _, durable := range []bool{false, true} {
				x := takeWarm(t)
				if durable {
					seal(t, x)
				}
				name := filepath.Join(x.dirs.Checkpoint(x.m.ID), where)
				switch where {
				case "manifest":
					name += ".json"
				case "layer":
					name = filepath.Join(x.dirs.LayerFS(x.m.Layers[0]), "root", "file")
				}
				flip(t, name, part)
				if _, err := x.store.Verification().Checkpoint(t.Context(), x.m.ID, x.hash); errdefs.CodeOf(err) != "checkpoint_corrupt" && (durable || where != "layer") {
					t.Errorf("%s at %v: verify says %v", where, part, err)
				}
				if where == "layer" {
					continue
				}
				// Of a durable one there is another image.
				if o, err := x.store.Open(t.Context(), x.m.ID, x.hash); durable && where != "manifest" {
					x.whole(t, o, err)
				} else if errdefs.CodeOf(err) != "checkpoint_corrupt" {
					t.Errorf("%s at %v, durable %v: open says %v", where, part, durable, err)
				}
			}
		}
	}
}

// whole checks that the image is as it was taken.
func (x taken) whole(t *testing.T, o *checkpoint.Opened, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, f := range x.m.Memory.Files {
		b, err := os.ReadFile(filepath.Join(o.Image.Dir, f.Name))
		if sum := blake3.Sum256(b); err != nil || hex.EncodeToString(sum[:]) != f.Hash {
			t.Fatalf("%s has changed, %v", f.Name, err)
		}
	}
	if n, err := x.store.Verification().Checkpoint(t.Context(), o.Manifest.ID, ""); err != nil || n == 0 {
		t.Fatalf("verified %d bytes, %v", n, err)
	}
}

func flip(t *testing.T, name string, part float64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[int(part*float64(len(b)))] ^= 1
	write(t, name, b)
}

func TestMissingAndForeignPartsAreNoticed(t *testing.T) {
	for name, damage := range map[string]func(x taken) error{
		"no pages":  func(x taken) error { return os.Remove(filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory", "pages")) },
		"no memory": func(x taken) error { return os.RemoveAll(filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory")) },
		"one more": func(x taken) error {
			return os.WriteFile(filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory", "zz"), nil, 0o600)
		},
		"no layer": func(x taken) error { return os.RemoveAll(x.dirs.Layer(x.m.Layers[0])) },
		"pages short": func(x taken) error {
			return os.Truncate(filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory", "pages"), 100)
		},
	} {
		for _, durable := range []bool{false, true} {
			x := takeWarm(t)
			if durable {
				seal(t, x)
			}
			if err := damage(x); err != nil {
				t.Fatal(err)
			}
			if o, err := x.store.Open(t.Context(), x.m.ID, x.hash); durable && name != "no layer" {
				x.whole(t, o, err)
			} else if errdefs.CodeOf(err) != "checkpoint_corrupt" {
				t.Errorf("%s, durable %v: open says %v", name, durable, err)
			}
		}
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	x := take(t)
	name := filepath.Join(x.dirs.Checkpoint(x.m.ID), "manifest.json")
	write(t, name, []byte(`{"format": 99}`))
	if _, err := x.store.Open(t.Context(), x.m.ID, ""); errdefs.CodeOf(err) != "checkpoint_newer" {
		t.Fatalf("got %v", err)
	}
}

func TestAliasSharesMemory(t *testing.T) {
	x := take(t)
	m := x.m
	m.ID, m.Kind = id.NewCheckpoint(), event.KindUndo
	d, err := x.store.Begin(m)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := d.Alias(t.Context(), x.m)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.store.Delete(t.Context(), x.m.ID); err != nil {
		t.Fatal(err)
	}
	if o, err := x.store.Open(t.Context(), m.ID, hash); err != nil || o.Image.Bytes != x.m.Memory.Bytes {
		t.Fatalf("%+v, %v", o, err)
	}
	complete, broken, err := x.store.List()
	if err != nil || len(complete) != 1 || len(broken) != 0 {
		t.Fatalf("%v %v %v", complete, broken, err)
	}
}

// TestS6_TornCheckpointIsNeverCalledDurable seals a warm checkpoint after the machine has gone down, as if what was written had not all
// reached the disk.
func TestS6_TornCheckpointIsNeverCalledDurable(t *testing.T) {
	for name, c := range map[string]struct {
		tear func(t *testing.T, x taken)
		boot string // "": the same, so that only the daemon had died
		want string
	}{
		"the daemon alone was restarted": {tear: func(*testing.T, taken) {}},
		"a memory file is empty": {boot: "next", want: "checkpoint_corrupt", tear: func(t *testing.T, x taken) {
			truncate(t, filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory", "pages"), 0)
			sealLayers(t, x)
		}},
		"memory has its size, but holds zeros": {boot: "next", want: "checkpoint_corrupt", tear: func(t *testing.T, x taken) {
			write(t, filepath.Join(x.dirs.Checkpoint(x.m.ID), "memory", "pages"), make([]byte, 3<<20))
			sealLayers(t, x)
		}},
		"a layer is empty": {boot: "next", want: "checkpoint_corrupt", tear: func(t *testing.T, x taken) {
			truncate(t, filepath.Join(x.dirs.LayerFS(x.m.Layers[0]), "root", "file"), 0)
		}},
		"nothing is torn":                 {boot: "next", tear: sealLayers},
		"it was synced before, and whole": {boot: "next", tear: func(t *testing.T, x taken) { syncOnly(t, x) }},
	} {
		x := takeWarm(t)
		c.tear(t, x)
		s := checkpoint.NewStore(x.dirs, images(t, x.dirs))
		if c.boot != "" {
			s = checkpoint.StoreOfBoot(x.dirs, images(t, x.dirs), c.boot)
		}
		if err := s.Seal(t.Context(), x.m); (err == nil) != (c.want == "") || err != nil && errdefs.CodeOf(err) != c.want {
			t.Errorf("%s: seal says %v, want %q", name, err, c.want)
		}
	}
}

// sealLayers does what another checkpoint on the same layers does when it becomes durable.
func sealLayers(t *testing.T, x taken) {
	t.Helper()
	m := x.m
	m.ID, m.Memory = id.NewCheckpoint(), nil
	d, err := x.store.Begin(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Commit(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := x.store.Seal(t.Context(), d.Manifest); err != nil {
		t.Fatal(err)
	}
}

// syncOnly does what a daemon does that stops while it seals.
func syncOnly(t *testing.T, x taken) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.store.Seal(ctx, x.m); !errors.Is(err, context.Canceled) {
		t.Fatalf("a seal that is stopped says %v", err)
	}
}

func truncate(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}
