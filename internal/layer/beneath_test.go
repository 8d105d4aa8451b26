package layer_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/layer"
)

// TestK10_LiveFilesNeverLeadOutOfTheLayer looks at an upper directory while a program in it swaps a directory, and a file, for links
// to the host.
func TestK10_LiveFilesNeverLeadOutOfTheLayer(t *testing.T) {
	const secret = "of the host"
	host, upper, empty := t.TempDir(), t.TempDir(), t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(host, "f"), secret)
	put(filepath.Join(host, "only", "there"), secret)
	if err := os.WriteFile(filepath.Join(host, "big"), make([]byte, 32<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(upper, "d", "f"), "of the session")
	put(filepath.Join(upper, "g"), "of the session")
	for name, to := range map[string]string{"l": host, "m": filepath.Join(host, "f")} {
		if err := os.Symlink(to, filepath.Join(upper, name)); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, pair := range [][2]string{{"d", "l"}, {"g", "m"}} {
				err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(upper, pair[0]), unix.AT_FDCWD, filepath.Join(upper, pair[1]), unix.RENAME_EXCHANGE)
				if err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	seen := map[string]bool{}
	for range 3000 {
		diffs, err := layer.Diff(t.Context(), "", []string{empty}, []string{upper})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range diffs {
			seen[d.Path] = true
			if d.To.Size == int64(len(secret)) && d.To.Mode&unix.S_IFMT == unix.S_IFREG || d.Path == "/d/only" || d.Path == "/l/only" {
				t.Fatalf("%s shows what is outside: %+v", d.Path, d.To)
			}
			f, err := d.ToSrc.Open()
			if err != nil {
				continue // a directory or a link, at this moment
			}
			b, err := io.ReadAll(f)
			f.Close()
			if err != nil || string(b) == secret {
				t.Fatalf("%s gives what is outside: %q, %v", d.Path, b, err)
			}
		}
		if n, err := layer.DiskUsage(t.Context(), upper); err != nil || n.Bytes > 1<<20 {
			t.Fatalf("%d bytes are used, %v", n, err)
		}
	}
	for _, path := range []string{"/d/f", "/l/f", "/g", "/m"} {
		if !seen[path] {
			t.Errorf("%s was never seen", path)
		}
	}
}
