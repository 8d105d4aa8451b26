package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/layer"
)

// entry is a header with its contents.
type entry struct {
	tar.Header
	body string
}

func file(name, body string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}, body}
}

func dir(name string, mode int64) entry {
	return entry{Header: tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: mode}}
}

func link(flag byte, name, target string) entry {
	return entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: flag, Mode: 0o777}}
}

func archiveOf(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
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

func unpack(t testing.TB, entries ...entry) (string, layer.Unpacked, error) {
	t.Helper()
	dst := t.TempDir()
	out, err := layer.Unpack(t.Context(), dst, archiveOf(t, entries...), layer.UnpackLimits{})
	return dst, out, err
}

func lstat(t *testing.T, path string) *unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return &st
}

func xattr(path, name string) string {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUnpackKeepsWhatFilesAre(t *testing.T) {
	when := time.Unix(1_600_000_000, 123_456_789)
	long := strings.Repeat("n", 255)
	setuid := file("bin/su", "x")
	setuid.Mode, setuid.ModTime, setuid.Format = 0o4755, when, tar.FormatPAX
	setuid.PAXRecords = map[string]string{"SCHILY.xattr.user.note": "kept", "SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.user.overlay.opaque": "y"}
	closed := dir("closed", 0)
	closed.ModTime, closed.Format = when, tar.FormatPAX
	dst, out, err := unpack(t, dir("bin", 0o755), setuid, closed, file("closed/f", "in"), link(tar.TypeLink, "bin/hard", "bin/su"),
		link(tar.TypeSymlink, "bin/soft", "/bin/su"), file("deep/er/"+long, "long"), entry{Header: tar.Header{Name: "pipe", Typeflag: tar.TypeFifo, Mode: 0o600}},
		entry{Header: tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		entry{Header: tar.Header{Name: "masked", Typeflag: tar.TypeChar}}, dir("tmp", 0o1777), dir(".", 0o750))
	if err != nil {
		t.Fatal(err)
	}
	su := lstat(t, dst+"/bin/su")
	if su.Mode&0o7777 != 0o4755 || su.Mtim.Nano() != when.UnixNano() {
		t.Errorf("su is %o of %d", su.Mode, su.Mtim.Nano())
	}
	if lstat(t, dst+"/bin/hard").Ino != su.Ino {
		t.Error("a hard link is a file of its own")
	}
	if target, err := os.Readlink(dst + "/bin/soft"); err != nil || target != "/bin/su" {
		t.Errorf("the link leads to %q: %v", target, err)
	}
	c := lstat(t, dst+"/closed")
	if c.Mode&0o7777 != 0 || c.Mtim.Nano() != when.UnixNano() {
		t.Errorf("closed is %o of %d", c.Mode, c.Mtim.Nano())
	}
	if lstat(t, dst+"/tmp").Mode&0o7777 != 0o1777 || lstat(t, dst).Mode&0o7777 != 0o750 {
		t.Error("a directory's mode is lost")
	}
	if read(t, dst+"/deep/er/"+long) != "long" {
		t.Error("a long name is lost")
	}
	if !slices.Equal(out.Implied, []string{"deep", "deep/er"}) {
		t.Errorf("implied: %v", out.Implied)
	}
	if lstat(t, dst+"/pipe").Mode&unix.S_IFMT != unix.S_IFIFO {
		t.Error("no FIFO")
	}
	for _, name := range []string{"dev/null", "masked"} {
		if _, err := os.Lstat(filepath.Join(dst, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a device was made: %v", name, err)
		}
	}
	if got := xattr(dst+"/bin/su", "user.note"); got != "kept" {
		t.Errorf("user.note is %q", got)
	}
	for _, name := range []string{"trusted.overlay.redirect", "user.overlay.opaque"} {
		if got := xattr(dst+"/bin/su", name); got != "" {
			t.Errorf("%s is %q: the archive speaks to overlayfs", name, got)
		}
	}
	if out.Skipped != 4 {
		t.Errorf("%d are skipped, want two devices and two attributes", out.Skipped)
	}
}

func TestUnpackOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	f, d := file("f", ""), dir("d", 0o700)
	f.Uid, f.Gid, d.Uid, d.Gid = 1000, 2000, 5, 6
	dst, _, err := unpack(t, f, d, file("d/g", ""))
	if err != nil {
		t.Fatal(err)
	}
	if st := lstat(t, dst+"/f"); st.Uid != 1000 || st.Gid != 2000 {
		t.Errorf("f is of %d:%d", st.Uid, st.Gid)
	}
	if st := lstat(t, dst+"/d"); st.Uid != 5 || st.Gid != 6 {
		t.Errorf("d is of %d:%d", st.Uid, st.Gid)
	}
}

func TestUnpackHoles(t *testing.T) {
	body := "begin" + strings.Repeat("\x00", 8<<20) + "end"
	dst, out, err := unpack(t, file("sparse", body))
	if err != nil {
		t.Fatal(err)
	}
	if read(t, dst+"/sparse") != body || out.Bytes != int64(len(body)) {
		t.Error("the contents are others")
	}
	if st := lstat(t, dst+"/sparse"); st.Blocks*512 > 1<<20 {
		t.Errorf("it takes %d bytes", st.Blocks*512)
	}
}

// A whiteout speaks of the layers below, wherever in the archive it stands.
func TestUnpackWhiteouts(t *testing.T) {
	dst, _, err := unpack(t, file("etc/.wh.gone", ""), file("a/.wh..wh..opq", ""), file("a/new", "n"), dir("b", 0o755), file("b/.wh.c", ""), dir("b/c", 0o755),
		file("b/c/f", "f"), dir("d/e", 0o755), file("d/.wh.e", ""), file("x", "stays"), file(".wh.x", ""), file("y/.wh.z", ""), file("y/z/in", "z"), file(".wh..wh.plnk/1", ""), file(".wh..wh.aufs", ""))
	if err != nil {
		t.Fatal(err)
	}
	if st := lstat(t, dst+"/etc/gone"); st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("no whiteout: %o", st.Mode)
	}
	mark := layer.Marks() + ".opaque"
	for _, name := range []string{"a", "b/c", "d/e", "y/z"} {
		if xattr(filepath.Join(dst, name), mark) != "y" {
			t.Errorf("%s is not opaque", name)
		}
	}
	for _, name := range []string{"b", "d", "y", "etc"} {
		if xattr(filepath.Join(dst, name), mark) == "y" {
			t.Errorf("%s is opaque", name)
		}
	}
	if read(t, dst+"/x") != "stays" || read(t, dst+"/b/c/f") != "f" || read(t, dst+"/y/z/in") != "z" {
		t.Error("a whiteout deleted what its own layer has")
	}
	for _, name := range []string{".wh..wh.aufs", "etc/.wh.gone"} {
		if _, err := os.Lstat(filepath.Join(dst, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
}

func TestUnpackLastEntryWins(t *testing.T) {
	dst, _, err := unpack(t, file("f", "one"), file("f", "two"), file("d/in", ""), link(tar.TypeSymlink, "d", "f"), link(tar.TypeSymlink, "l", "f"),
		file("l", "three"), file("h", "four"), link(tar.TypeLink, "h", "h"), link(tar.TypeLink, "f", "h"))
	if err != nil {
		t.Fatal(err)
	}
	if read(t, dst+"/f") != "four" || read(t, dst+"/l") != "three" || read(t, dst+"/h") != "four" {
		t.Errorf("f is %q, l is %q", read(t, dst+"/f"), read(t, dst+"/l"))
	}
	if st := lstat(t, dst+"/d"); st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("d is %o", st.Mode)
	}
}

// outside is a directory that a hostile archive aims at; check says that nothing has happened to it.
func outside(t *testing.T) (path string, check func()) {
	t.Helper()
	path = t.TempDir()
	if err := os.WriteFile(path+"/secret", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		t.Helper()
		names, err := os.ReadDir(path)
		if err != nil || len(names) != 1 || read(t, path+"/secret") != "secret" || lstat(t, path+"/secret").Nlink != 1 || lstat(t, path+"/secret").Mode&0o777 != 0o600 {
			t.Errorf("something outside has changed: %v %v", names, err)
		}
	}
}

// TestK10_LayersAreHostile unpacks what an image may have been made to do.
func TestK10_LayersAreHostile(t *testing.T) {
	out, check := outside(t)
	up := strings.Repeat("../", 20)
	for name, entries := range map[string][]entry{
		"dot dot":                     {file("../x", "bad")},
		"dot dot inside":              {file("a/../../x", "bad")},
		"dot dot, absolute":           {file("/../x", "bad")},
		"hard link out":               {link(tar.TypeLink, "x", up+out[1:]+"/secret")},
		"absolute hard link":          {link(tar.TypeLink, "x", out+"/secret")},
		"hard link to nothing":        {link(tar.TypeLink, "x", "y")},
		"hard link to a directory":    {dir("d", 0o755), link(tar.TypeLink, "x", "d")},
		"hard link through a symlink": {link(tar.TypeSymlink, "out", out), link(tar.TypeLink, "x", "out/secret")},
		"write through a symlink":     {link(tar.TypeSymlink, "out", out), file("out/secret", "bad")},
		"write through two":           {link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "b", out), file("a/secret", "bad")},
		"symlink loop":                {link(tar.TypeSymlink, "a", "a"), file("a/x", "bad")},
		"file as a directory":         {file("f", ""), file("f/x", "bad")},
		"name too long":               {file(strings.Repeat("n", 256), "")},
		"path too long":               {file(strings.Repeat("nnn/", 1100)+"x", "")},
		"whiteout of nothing":         {file(".wh.", "")},
		"whiteout of the parent":      {file("a/.wh...", "")},
		"empty link":                  {{Header: tar.Header{Name: "x", Typeflag: tar.TypeSymlink}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := unpack(t, entries...)
			if errdefs.CodeOf(err) != "image_invalid" {
				t.Errorf("error %v", err)
			}
			check()
		})
	}
	// These are harmless where they land, below the top.
	for name, c := range map[string]struct {
		entries []entry
		at      string
	}{
		"absolute name":              {[]entry{file(out+"/secret", "in")}, out + "/secret"},
		"relative link to the top":   {[]entry{dir("top", 0o755), link(tar.TypeSymlink, "top/l", "../../.."), file("top/l/x", "in")}, "/x"},
		"absolute link is the top's": {[]entry{dir("real", 0o755), link(tar.TypeSymlink, "l", "/real"), file("l/x", "in")}, "/real/x"},
		"link replaced by a file":    {[]entry{link(tar.TypeSymlink, "l", out+"/secret"), file("l", "in")}, "/l"},
		"metadata of a link":         {[]entry{link(tar.TypeSymlink, "l", out+"/secret"), {Header: tar.Header{Name: "l", Linkname: out, Typeflag: tar.TypeSymlink, Mode: 0o777, Uid: 7}}, file("x", "in")}, "/x"},
		"directory over a link":      {[]entry{link(tar.TypeSymlink, "l", out), dir("l", 0o777), file("l/secret", "in")}, "/l/secret"},
	} {
		t.Run(name, func(t *testing.T) {
			dst, _, err := unpack(t, c.entries...)
			if err != nil {
				t.Fatal(err)
			}
			if read(t, dst+c.at) != "in" {
				t.Error("it is not where it belongs")
			}
			check()
		})
	}
}

func TestUnpackBounds(t *testing.T) {
	huge := tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 1 << 40}
	var buf bytes.Buffer
	if err := tar.NewWriter(&buf).WriteHeader(&huge); err != nil {
		t.Fatal(err)
	}
	if _, err := layer.Unpack(t.Context(), t.TempDir(), &buf, layer.UnpackLimits{}); errdefs.CodeOf(err) != "image_too_large" {
		t.Errorf("a terabyte: %v", err)
	}
	many := make([]entry, 0, 20)
	for i := range 20 {
		many = append(many, file(fmt.Sprint(i), ""))
	}
	if _, err := layer.Unpack(t.Context(), t.TempDir(), archiveOf(t, many...), layer.UnpackLimits{Entries: 10}); errdefs.CodeOf(err) != "image_too_large" {
		t.Errorf("too many entries: %v", err)
	}
	if _, err := layer.Unpack(t.Context(), t.TempDir(), archiveOf(t, file("a", "12345"), file("b", "67890")), layer.UnpackLimits{Bytes: 9}); errdefs.CodeOf(err) != "image_too_large" {
		t.Errorf("too many bytes: %v", err)
	}
	whole := archiveOf(t, file("a", strings.Repeat("x", 2000))).Bytes()
	if _, err := layer.Unpack(t.Context(), t.TempDir(), bytes.NewReader(whole[:1500]), layer.UnpackLimits{}); errdefs.CodeOf(err) != "image_invalid" {
		t.Errorf("cut: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := layer.Unpack(ctx, t.TempDir(), archiveOf(t, file("a", "")), layer.UnpackLimits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// FuzzUnpack: whatever the bytes are, nothing outside changes, and an error has a code or is about this machine.
func FuzzUnpack(f *testing.F) {
	f.Add(archiveOf(f, dir("d", 0o700), file("d/f", "body"), link(tar.TypeSymlink, "l", "/"), file("l/x", "y"), file("d/.wh.f", ""), link(tar.TypeLink, "h", "d/f")).Bytes())
	f.Add(archiveOf(f, link(tar.TypeSymlink, "a", ".."), link(tar.TypeSymlink, "b", "a/.."), file("b/x", "y"), file("../x", "")).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		dst := filepath.Join(top, "in", "dst")
		if err := os.MkdirAll(dst, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := layer.Unpack(t.Context(), dst, bytes.NewReader(data), layer.UnpackLimits{Entries: 1000, Bytes: 1 << 20})
		if err != nil && errdefs.CodeOf(err) == "internal" {
			t.Errorf("error without a code: %v", err)
		}
		for path, want := range map[string]string{top: "in", filepath.Join(top, "in"): "dst"} {
			names, err := os.ReadDir(path)
			if err != nil || len(names) != 1 || names[0].Name() != want {
				t.Fatalf("something was made in %s: %v %v", path, names, err)
			}
		}
		err = filepath.WalkDir(dst, func(p string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(p, 0o700)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
