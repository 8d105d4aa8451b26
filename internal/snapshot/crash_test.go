package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/snapshot/snapshottest"
)

// TestDeathAtEachOperation lets the machine die at each operation of a life of snapshots, before it is done and after. Whatever was acknowledged is there
// afterwards, whatever was not is there whole or not at all, and nothing is left that nobody needs.
func TestDeathAtEachOperation(t *testing.T) {
	base := noise(1, 600<<10)
	content := func(i int) []byte {
		b := slices.Clone(base)
		copy(b[i<<16:], noise(uint64(50+i), 48<<10))
		return b
	}
	// acknowledged is what the store has said; unsure, what it was doing when it died.
	type state struct {
		acknowledged map[string]bool
		unsure       string
	}
	life := func(r *rig) (s state, err error) {
		s.acknowledged = map[string]bool{}
		for i := range 4 {
			s.unsure = fmt.Sprint("s", i)
			if _, err := r.trySave(t, "lin", s.unsure, content(i)); err != nil {
				return s, err
			}
			s.acknowledged[s.unsure] = true
		}
		for _, i := range []int{0, 2} {
			s.unsure = fmt.Sprint("s", i)
			delete(s.acknowledged, s.unsure)
			if err := r.Delete(t.Context(), "lin", s.unsure); err != nil {
				return s, err
			}
			if _, err := r.Collect(t.Context(), "lin"); err != nil {
				return s, err
			}
		}
		s.unsure = "s4"
		if _, err := r.trySave(t, "lin", "s4", content(4)); err != nil {
			return s, err
		}
		s.acknowledged["s4"] = true
		return s, nil
	}
	step := 1
	if testing.Short() {
		step = 9
	}
	for n := 0; ; n += step {
		for _, after := range []bool{false, true} {
			r := newRig(t, t.TempDir())
			r.bucket.Before, r.bucket.After = snapshottest.DieAt(n, after)
			s, err := life(r)
			if err == nil { // it has fewer operations: how many depends on where the key cuts
				if n < 40 {
					t.Fatalf("only %d operations", n)
				}
				return
			}
			if !errors.Is(err, snapshottest.ErrInjected) {
				t.Fatalf("death at %d: %v", n, err)
			}
			r = newRig(t, r.dir)
			if _, err := r.Collect(t.Context(), "lin"); err != nil && errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
				t.Fatalf("death at %d: Collect: %v", n, err)
			}
			for i := range 5 {
				name := fmt.Sprint("s", i)
				got, err := r.load(t, "lin", name)
				switch {
				case s.acknowledged[name] || err == nil:
					if err != nil || !bytes.Equal(got, content(i)) {
						t.Fatalf("death at %d, after %v: %s: %v", n, after, name, err)
					}
					if !s.acknowledged[name] && name != s.unsure {
						t.Fatalf("death at %d, after %v: %s is back", n, after, name)
					}
				case errdefs.CodeOf(err) != snapshot.CodeNotFound && errdefs.CodeOf(err) != snapshot.CodeKeyMissing:
					t.Fatalf("death at %d, after %v: %s: %v", n, after, name, err)
				}
			}
			clean(t, r, n)
		}
	}
}

// clean checks that after everything is deleted, nothing is left.
func clean(t *testing.T, r *rig, n int) {
	t.Helper()
	for i := range 5 {
		if err := r.Delete(t.Context(), "lin", fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Collect(t.Context(), "lin"); err != nil && errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
		t.Fatal(err)
	}
	for o, err := range r.bucket.List(t.Context(), "") {
		t.Fatalf("death at %d: %s is left, %v", n, o.Name, err)
	}
}

// TestAFaultAtEachOperation lets each operation fail once: the call fails with that, and the store goes on with everything it had.
func TestAFaultAtEachOperation(t *testing.T) {
	first, second := noise(1, 300<<10), append(noise(2, 100<<10), noise(1, 200<<10)...)
	for n := 0; ; n++ {
		r := newRig(t, t.TempDir())
		r.save(t, "lin", "a", first)
		from, hit := r.bucket.Operations(), false
		r.bucket.Before = func(at int, _, _ string) error {
			if at == from+n {
				hit = true
				return snapshottest.ErrInjected
			}
			return nil
		}
		_, err := r.trySave(t, "lin", "b", second)
		if !hit {
			_, err = r.Collect(t.Context(), "lin")
		}
		if !hit {
			_, err = r.load(t, "lin", "a")
		}
		if hit && !errors.Is(err, snapshottest.ErrInjected) {
			t.Fatalf("fault at %d: %v", n, err)
		}
		if !hit {
			if n < 8 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
		r.bucket.Before = nil
		if _, err := r.trySave(t, "lin", "b", second); err != nil && errdefs.CodeOf(err) != snapshot.CodeExists {
			t.Fatalf("after a fault at %d: %v", n, err)
		}
		r.want(t, "lin", "a", first)
		r.want(t, "lin", "b", second)
	}
}
