package file

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

type entry struct {
	name, link, body string
	kind             byte
}

func tarball(t testing.TB, entries ...entry) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.body))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func TestK10_AWorkspaceCannotWriteOutsideTheTarget(t *testing.T) {
	dir := t.TempDir()
	outside, target := filepath.Join(dir, "outside"), filepath.Join(dir, "target")
	if err := os.WriteFile(outside, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, entries := range [][]entry{
		{{"t/../../outside", "", "evil", tar.TypeReg}},
		{{"../outside", "", "evil", tar.TypeReg}},
		{{"/outside", "", "evil", tar.TypeReg}},
		{{"t/link", outside, "", tar.TypeSymlink}, {"t/link", "", "evil", tar.TypeReg}},
		{{"t/up", "..", "", tar.TypeSymlink}, {"t/up/outside", "", "evil", tar.TypeReg}},
		{{"t/dev", "", "", tar.TypeBlock}, {"t/hard", outside, "", tar.TypeLink}},
	} {
		_ = unpack(tarball(t, entries...), target) // may be refused or harmless
		if got, err := os.ReadFile(outside); err != nil || string(got) != "mine" {
			t.Errorf("archive %d wrote outside: %q, %v", i, got, err)
		}
	}
	// A link that an earlier copy left in the target is not followed.
	if err := os.Symlink(outside, filepath.Join(target, "f")); err != nil {
		t.Fatal(err)
	}
	if err := unpack(tarball(t, entry{"t/f", "", "new", tar.TypeReg}), target); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "mine" {
		t.Errorf("an old link was followed: %q, %v", got, err)
	}
}

func TestPackAndUnpack(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := os.MkdirAll(filepath.Join(src, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "sub/f"), []byte("body"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/f", filepath.Join(src, "l")); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := Pack(&buf, src, "name"); err != nil {
		t.Fatal(err)
	}
	if err := unpack(&buf, dst); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dst, "l"))
	info, serr := os.Stat(filepath.Join(dst, "sub/f"))
	if err != nil || serr != nil || string(got) != "body" || info.Mode().Perm()&0o700 != 0o700 {
		t.Errorf("copy = %q, %v, %v", got, err, serr)
	}
}
