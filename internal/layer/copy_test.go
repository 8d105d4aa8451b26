package layer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/layer"
)

// Everything about a file arrives in the layer, on both sides of the size up to which it is copied at once, also below a directory whose
// group is given to all that is made in it.
func TestDeltaKeepsWhatAFileIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	upper, dst := t.TempDir(), t.TempDir()
	dir := filepath.Join(upper, "shared")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chown(dir, 7, 8); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(dir, 0o2775); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 300_000} {
		for _, mode := range []uint32{0o644, 0o000, 0o444, 0o777, 0o4755, 0o2755, 0o6711, 0o1600} {
			for _, owner := range [][2]int{{0, 0}, {0, 8}, {1000, 1000}} {
				n++
				name := filepath.Join(dir, fmt.Sprintf("%d-%o-%d-%d", size, mode, owner[0], owner[1]))
				if err := os.WriteFile(name, bytes.Repeat([]byte{byte(n)}, size), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := unix.Chown(name, owner[0], owner[1]); err != nil {
					t.Fatal(err)
				}
				if err := unix.Setxattr(name, "user.mark", fmt.Append(nil, n), 0); err != nil {
					t.Fatal(err)
				}
				if err := unix.Chmod(name, mode); err != nil {
					t.Fatal(err)
				}
				at := time.Unix(int64(1_000_000+n), int64(n)+123_456_000)
				if err := os.Chtimes(name, at, at); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, _, err := layer.Delta(t.Context(), upper, dst, layer.Index{}); err != nil {
		t.Fatal(err)
	}
	want, got := describe(t, upper), describe(t, dst)
	if !slices.Equal(want, got) {
		for i := range want {
			if i >= len(got) || want[i] != got[i] {
				t.Fatalf("%d of %d entries; the first that differs:\n%s\n%s", len(got), len(want), want[i], got[min(i, len(got)-1)])
			}
		}
	}
	for i := range n {
		files, err := filepath.Glob(filepath.Join(dst, "shared", "*"))
		if err != nil || len(files) != n {
			t.Fatalf("%d files, want %d: %v", len(files), n, err)
		}
		var a, b [16]byte
		an, aerr := unix.Getxattr(files[i], "user.mark", a[:])
		bn, berr := unix.Getxattr(filepath.Join(dir, filepath.Base(files[i])), "user.mark", b[:])
		if aerr != nil || berr != nil || !bytes.Equal(a[:an], b[:bn]) {
			t.Fatalf("%s: mark %q %v, want %q %v", files[i], a[:max(an, 0)], aerr, b[:max(bn, 0)], berr)
		}
	}
}
