package gvisor

import (
	"os"
	"path/filepath"
	"testing"
)

// A machine that goes down may leave files empty that had been written. What is named by its content must have it.
func TestDamagedCacheIsMended(t *testing.T) {
	cache := t.TempDir()
	binary := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(binary, []byte("a guest"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		ensure func() (string, error)
		file   string // below the path
	}{
		{"the base", func() (string, error) { return ensureBase(cache) }, "etc/passwd"},
		{"the mount points", func() (string, error) { return ensureMounts(cache) }, "etc/resolv.conf"},
		{"the guest", func() (string, error) { return ensureGuest(cache, binary) }, ""},
	} {
		path, err := c.ensure()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		file := filepath.Join(path, c.file)
		want, err := os.ReadFile(file)
		if err != nil || len(want) == 0 {
			t.Fatalf("%s: %q, %v", c.name, want, err)
		}
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		if again, err := c.ensure(); err != nil || again != path {
			t.Fatalf("%s is %s, then %s, %v", c.name, path, again, err)
		}
		if have, err := os.ReadFile(file); err != nil || string(have) != string(want) {
			t.Errorf("%s: %s holds %q after it was mended, %v", c.name, c.file, have, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(cache, ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
