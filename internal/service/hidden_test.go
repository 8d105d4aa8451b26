package service_test

import (
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/sandbox/gvisor"
)

// TestHostImageHidesWhatIsRootsAlone: the machine's /usr is shown inside, where root reads it; but not what on the machine only root may
// read, also when it comes later.
func TestHostImageHidesWhatIsRootsAlone(t *testing.T) {
	dir, err := os.MkdirTemp("/usr/local/share", "perdure-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	put := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil { // as a data directory of ours is
		t.Fatal(err)
	}
	put("secret", 0o600)
	put("open", 0o644)
	put("data/file", 0o644)
	w := newWorld(t)
	w.create("a", gvisor.Name)
	put("later", 0o600)
	look := "cd " + dir + "; id -u; cat open; for f in secret later data/file; do cat $f 2>/dev/null && echo; done; ls data 2>/dev/null; exit 0"
	want := "0\ntext"
	w.want(w.sh("a", look), want)
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", look), want)
}
