package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/snapshot/disk"
	"perdure.dev/perdure/internal/snapshot/snapshottest"
)

func TestBucket(t *testing.T) {
	snapshottest.Run(t, func(t *testing.T) snapshot.Bucket { return open(t, t.TempDir()) })
}

func open(t *testing.T, dir string) *disk.Bucket {
	t.Helper()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	snapshottest.RunKeys(t, func() snapshot.Keys {
		k, err := disk.OpenKeys(dir)
		if err != nil {
			panic(err)
		}
		return k
	})
	private(t, dir)
}

// private checks that nobody else may read what is there.
func private(t *testing.T, dir string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestObjectsArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := open(t, dir).Put(t.Context(), "lin/packs/a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	private(t, dir)
}

func TestOpenRemovesWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	if err := b.Put(t.Context(), "lin/a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "lin", ".new-123")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range b.List(t.Context(), "lin/.new") {
		t.Error("half an object is listed")
	}
	open(t, dir)
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left, err)
	}
}

func TestNothingIsLeftOfADeletedLineage(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	for _, name := range []string{"lin/packs/a", "lin/manifests/m"} {
		if err := b.Put(t.Context(), name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"lin/packs/a", "lin/manifests/m"} {
		if err := b.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestNamesStayInside(t *testing.T) {
	b := open(t, t.TempDir())
	for _, name := range []string{"", ".", "..", "../x", "a/../../x", "/etc/x", "a//b", "a/", "a/.new-x"} {
		if err := b.Put(t.Context(), name, nil); err == nil || !strings.Contains(err.Error(), "no name") {
			t.Errorf("Put(%q): %v", name, err)
		}
		if _, err := b.Get(t.Context(), name, 0, -1); err == nil {
			t.Errorf("Get(%q) found something", name)
		}
	}
}

// TestPublicKeys makes a lineage whose key is no secret, beside one whose key is, and opens both the other way.
func TestPublicKeys(t *testing.T) {
	root := t.TempDir()
	secret, err := disk.OpenKeys(root)
	if err != nil {
		t.Fatal(err)
	}
	public, err := disk.OpenPublicKeys(root)
	if err != nil {
		t.Fatal(err)
	}
	key := func(k *disk.Keys, l snapshot.Lineage) snapshot.Key {
		t.Helper()
		got, err := k.Key(t.Context(), l, true)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a, b := key(secret, "a"), key(public, "b")
	if a == snapshot.PublicKey() || b != snapshot.PublicKey() {
		t.Fatal("the keys are the wrong way round")
	}
	if key(public, "a") != a || key(secret, "b") != b {
		t.Error("a lineage has got another key")
	}
	if err := public.Destroy(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if key(secret, "b") == snapshot.PublicKey() {
		t.Error("a new lineage has the key that everybody has")
	}
}
