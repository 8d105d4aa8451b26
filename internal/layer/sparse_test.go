package layer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/layer"
)

// TestK10_DiffOfAHugeSparseFile compares files that are nearly all hole: nobody could wait until 4 TiB are read. What is in them counts.
func TestK10_DiffOfAHugeSparseFile(t *testing.T) {
	const size = 4 << 40
	write := func(text string, at int64) string {
		t.Helper()
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	far := int64(size - 8192)
	a, same, other, moved, empty := write("one", far), write("one", far), write("two", far), write("one", 1<<30), write("", 0)
	for _, c := range []struct {
		b    string
		want int
	}{{same, 0}, {other, 1}, {moved, 1}, {empty, 1}} {
		diffs, err := layer.Diff(t.Context(), "", []string{a}, []string{c.b})
		if err != nil || len(diffs) != c.want {
			t.Errorf("%d differences, not %d: %v", len(diffs), c.want, err)
		}
	}
}

// TestDiffStopsInsideAFile leaves a comparison while it reads one file.
func TestDiffStopsInsideAFile(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx := &countdown{Context: t.Context(), left: 12} // enough for the walks, not for 16 reads
	if _, err := layer.Diff(ctx, "", []string{a}, []string{b}); !errors.Is(err, context.Canceled) {
		t.Errorf("a diff that was left: %v", err)
	}
}

// countdown is a context that ends after it was asked a number of times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}
