package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/layer"
)

// carry packs a layer into a tar archive and builds another of it.
func carry(t *testing.T, dir string) string {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	err := layer.Pack(t.Context(), dir, t.TempDir(), func(e layer.Entry) error {
		if err := tw.WriteHeader(e.Header("layers/x/")); err != nil || e.Body == nil {
			return err
		}
		_, err := io.Copy(tw, e.Body)
		return err
	})
	if err = errors.Join(err, tw.Close()); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := build(t.Context(), to, &buf); err != nil {
		t.Fatal(err)
	}
	return to
}

func build(_ context.Context, to string, r io.Reader) error {
	b, tr := layer.NewBuilder(to), tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return b.Close()
		}
		if err != nil {
			return err
		}
		e, err := layer.EntryOf(h, "layers/x/")
		if err != nil {
			return err
		}
		e.Body = tr
		if err := b.Add(e); err != nil {
			return err
		}
	}
}

// TestPackedLayerIsTheSame: all that a layer can hold comes out as it went in.
func TestPackedLayerIsTheSame(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(at("a/b"), 0o755))
	must(os.WriteFile(at("a/file"), bytes.Repeat([]byte("content"), 100_000), 0o640))
	must(os.Link(at("a/file"), at("a/b/again")))
	must(os.WriteFile(at("a/.wh.not-a-whiteout"), []byte("x"), 0o600))
	must(os.Symlink("../../../etc/passwd", at("a/link")))
	must(unix.Mknod(at("gone"), unix.S_IFCHR, 0))
	must(unix.Mkfifo(at("fifo"), 0o600))
	must(unix.Mknod(at("socket"), unix.S_IFSOCK|0o755, 0))
	must(os.WriteFile(at("empty"), nil, 0o444))
	sparse, err := os.Create(at("sparse"))
	must(err)
	must(sparse.Truncate(64 << 20))
	_, err = sparse.WriteAt([]byte("end"), 64<<20-3)
	must(err)
	must(sparse.Close())
	must(unix.Lsetxattr(at("a/file"), "user.mine", []byte("v\x00v"), 0))
	must(os.WriteFile(at("suid"), []byte("x"), 0o755))
	must(os.Chmod(at("suid"), 0o755|os.ModeSetuid))
	must(os.Mkdir(at("closed"), 0o700))
	must(os.WriteFile(at("closed/in"), []byte("secret"), 0o600))
	opaque := layer.Marks() + ".opaque"
	must(unix.Lsetxattr(at("a/b"), opaque, []byte("y"), 0))
	must(os.Chmod(at("closed"), 0o500))
	t.Cleanup(func() { os.Chmod(at("closed"), 0o700) })
	when := time.Unix(1_600_000_000, 123_456_789)
	must(os.Chtimes(at("a/file"), when, when))
	must(os.Chtimes(at("a"), when, when))

	to := carry(t, dir)
	want, _, err := layer.Hash(t.Context(), dir)
	must(err)
	got, _, err := layer.Hash(t.Context(), to)
	must(err)
	if got != want {
		t.Error("the layers differ")
		sameTree(t, "unpacked", to, dir)
	}
	var st, again unix.Stat_t
	must(unix.Lstat(filepath.Join(to, "a/file"), &st))
	must(unix.Lstat(filepath.Join(to, "a/b/again"), &again))
	if st.Ino != again.Ino {
		t.Error("a hard link became a copy")
	}
	must(unix.Lstat(filepath.Join(to, "sparse"), &st))
	if st.Blocks > 64 {
		t.Errorf("a hole takes %d blocks", st.Blocks)
	}
	buf := make([]byte, 8)
	if n, err := unix.Lgetxattr(filepath.Join(to, "a/file"), "user.mine", buf); err != nil || string(buf[:n]) != "v\x00v" {
		t.Errorf("attribute: %q, %v", buf[:max(n, 0)], err)
	}
	if n, err := unix.Lgetxattr(filepath.Join(to, "a/b"), opaque, buf); err != nil || string(buf[:n]) != "y" {
		t.Errorf("opaque: %v", err)
	}
	must(unix.Lstat(filepath.Join(to, "a"), &st))
	if st.Mtim.Nano() != when.UnixNano() {
		t.Error("a directory has another time")
	}
}

// hostile are archives that are no layers. Each comes after the layer itself.
func hostile() map[string][]tar.Header {
	dir := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeDir, Name: "layers/x/" + name, Mode: 0o755}
	}
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: "layers/x/" + name, Mode: 0o644}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: "layers/x/" + name, Linkname: to}
	}
	hard := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: "layers/x/" + name, Linkname: to}
	}
	return map[string][]tar.Header{
		"above":                       {file("../out")},
		"absolute":                    {{Typeflag: tar.TypeReg, Name: "/tmp/out"}},
		"another part":                {{Typeflag: tar.TypeReg, Name: "memory/pages.img"}},
		"through a link":              {link("l", "/tmp"), file("l/out")},
		"through a link to the layer": {dir("d"), link("l", "d"), file("l/out")},
		"in place of a link":          {link("l", "/tmp/out"), file("l")},
		"twice":                       {file("f"), file("f")},
		"a directory twice":           {dir("d"), dir("d")},
		"without its directory":       {file("d/f")},
		"a hard link out":             {hard("h", "/etc/passwd")},
		"a hard link above":           {hard("h", "layers/x/../../etc/passwd")},
		"a hard link to a link":       {link("l", "/etc/passwd"), hard("h", "layers/x/l")},
		"a hard link to a directory":  {dir("d"), hard("h", "layers/x/d")},
		"a device":                    {{Typeflag: tar.TypeChar, Name: "layers/x/null", Devmajor: 1, Devminor: 3}},
		"a disk":                      {{Typeflag: tar.TypeBlock, Name: "layers/x/sda", Devmajor: 8}},
		"a name too long":             {file(strings.Repeat("n", 300))},
		"not clean":                   {dir("d"), file("d/./f")},
		"an owner that cannot be":     {{Typeflag: tar.TypeReg, Name: "layers/x/f", Uid: -1}},
	}
}

func TestHostileLayersAreRefused(t *testing.T) {
	for name, headers := range hostile() {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			tw := tar.NewWriter(&buf)
			all := append([]tar.Header{{Typeflag: tar.TypeDir, Name: "layers/x/./", Mode: 0o755}}, headers...)
			for _, h := range all {
				if err := tw.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			if err := tw.Close(); err != nil {
				t.Fatal(err)
			}
			if err := build(t.Context(), t.TempDir(), &buf); errdefs.CodeOf(err) != "bad_archive" {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// FuzzBuilder builds layers of whatever comes. Nothing outside may be touched.
func FuzzBuilder(f *testing.F) {
	for _, headers := range hostile() {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		for _, h := range append([]tar.Header{{Typeflag: tar.TypeDir, Name: "layers/x/./", Mode: 0o755}}, headers...) {
			if err := tw.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
		}
		if err := tw.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "layer"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := build(t.Context(), filepath.Join(dir, "layer"), bytes.NewReader(data)); err == nil {
			if _, _, err := layer.Hash(t.Context(), filepath.Join(dir, "layer")); err != nil {
				t.Errorf("what was built cannot be read: %v", err)
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Fatalf("beside it: %v, %v", entries, err)
		}
	})
}
