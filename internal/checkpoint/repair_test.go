package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
)

// TestRepairHealsOneCopyByTheOther damages either copy of two images that share a file, as a disk does.
func TestRepairHealsOneCopyByTheOther(t *testing.T) {
	files := func(c taken) []string {
		names, err := filepath.Glob(filepath.Join(c.memoryDir(), "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	objects := func(c taken, what string) []string {
		names, err := filepath.Glob(filepath.Join(c.dirs.Root, "images", "*", what, "*"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		return names
	}
	for _, c := range []struct {
		name    string
		damage  func(x, y taken)
		healed  int
		copy    string
		remains bool
	}{
		{name: "nothing", damage: func(taken, taken) {}},
		{name: "packs", healed: 2, copy: checkpoint.CopyStored, damage: func(x, y taken) {
			for _, o := range objects(x, "packs") {
				for _, at := range []float64{0.1, 0.5, 0.9} {
					flip(t, o, at)
				}
			}
		}},
		{name: "packs that are gone", healed: 2, copy: checkpoint.CopyStored, damage: func(x, y taken) {
			for _, o := range objects(x, "packs") {
				if err := os.Remove(o); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{name: "manifests", healed: 2, copy: checkpoint.CopyStored, damage: func(x, y taken) {
			for _, o := range objects(x, "manifests") {
				flip(t, o, 0.5)
			}
		}},
		{name: "a file that both have", healed: 2, copy: checkpoint.CopyFiles, damage: func(x, y taken) {
			damageByte(t, filepath.Join(x.memoryDir(), "pages"))
		}},
		{name: "files of one", healed: 1, copy: checkpoint.CopyFiles, damage: func(x, y taken) {
			if err := os.Remove(filepath.Join(y.memoryDir(), "state")); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "both", remains: true, damage: func(x, y taken) {
			for _, name := range append(files(y), objects(x, "packs")...) {
				if err := os.Truncate(name, 10); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := take(t)
			y := x.next(t)
			seal(t, y)
			c.damage(x, y)
			s := checkpoint.NewStore(x.dirs, images(t, x.dirs)) // another process
			found, healed, err := s.RepairImages(t.Context(), x.m.SessionID, []checkpoint.Manifest{x.m, y.m})
			if err != nil {
				t.Fatal(err)
			}
			if len(healed) != c.healed {
				t.Errorf("it healed %+v, want %d; it found %+v", healed, c.healed, found)
			}
			for _, h := range healed {
				if h.Copy != c.copy {
					t.Errorf("it healed %+v, want the copy %s", h, c.copy)
				}
			}
			left, err := s.CheckImages(t.Context(), x.m.SessionID)
			if err != nil || (len(left.Lost) > 0 || len(left.Damaged) > 0) != c.remains && !c.remains {
				t.Errorf("left: %+v, %v", left, err)
			}
			for _, k := range []taken{x, y} {
				k.store = s
				_, err := s.Verification().Checkpoint(t.Context(), k.m.ID, k.hash)
				if c.remains != (errdefs.CodeOf(err) == "checkpoint_corrupt") {
					t.Errorf("verify says %v", err)
				}
				shed(t, s, 0)
				if o, err := s.Open(t.Context(), k.m.ID, k.hash); !c.remains {
					k.whole(t, o, err)
				}
			}
			if names, err := filepath.Glob(filepath.Join(x.dirs.Root, "images", "*", "manifests", "repair-*")); err != nil || len(names) > 0 {
				t.Errorf("%v is left, %v", names, err)
			}
		})
	}
}

func TestRepairOfNothing(t *testing.T) {
	x := takeWarm(t)
	if _, healed, err := x.store.RepairImages(t.Context(), "sess_none", nil); err != nil || len(healed) > 0 {
		t.Errorf("%v, %v", healed, err)
	}
	if u, err := x.store.ImageUsage(t.Context(), "sess_none"); err != nil || u.Stored != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}
