package layer_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/internal/layer"
)

func TestMain(m *testing.M) {
	if layer.Helper(context.Background()) {
		return
	}
	os.Exit(m.Run())
}

const nobody = 65534

// asNobody runs the calling test in a process of a plain user, and reports whether this is the one that starts it.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return false
	}
	dir, err := os.MkdirTemp("", "perdure-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	switch {
	case strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skipf("as a plain user: %s", out)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("as a plain user: %v\n%s", err, out)
	}
	return true
}

// A daemon without root keeps what a program took its own owner's rights away from: mode 000 is no obstacle to root inside.
func TestModesThatRefuseTheirOwner(t *testing.T) {
	if asNobody(t) {
		return
	}
	upper, dst := filepath.Join(t.TempDir(), "upper"), t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(upper, "file"), "unreadable", 0)
	write(filepath.Join(upper, "closed/inner/file"), "hidden", 0o644)
	write(filepath.Join(upper, "fixed/file"), "in a directory that nobody may write to", 0o444)
	modes := map[string]os.FileMode{"closed/inner": 0o300, "closed": 0, "fixed": 0o555}
	for _, name := range []string{"closed/inner", "closed", "fixed"} {
		if err := os.Chmod(filepath.Join(upper, name), modes[name]); err != nil {
			t.Fatal(err)
		}
	}
	open := func(dir string) { // so that this test can look, and clean up
		for _, name := range []string{"closed", "closed/inner", "fixed"} {
			if err := os.Chmod(filepath.Join(dir, name), 0o700); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { open(upper); open(dst) })

	index, stats, err := layer.Delta(t.Context(), upper, dst, layer.Index{})
	if err != nil && strings.Contains(err.Error(), "fork/exec") {
		t.Skipf("this machine lets users make no user namespaces: %v", err)
	}
	if err != nil || stats.Files != 3 {
		t.Fatalf("%+v %v", stats, err)
	}
	if s := index.Stamps["closed/inner/file"]; s.UID != nobody || s.Size != 6 {
		t.Errorf("%+v", s)
	}
	for name, mode := range modes {
		if name == "closed/inner" {
			continue // this test cannot see it
		}
		if info, err := os.Stat(filepath.Join(dst, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if diffs, err := layer.Diff(t.Context(), "", []string{upper}, []string{dst}); err != nil || len(diffs) != 0 {
		t.Errorf("the layer differs: %+v %v", diffs, err)
	}
	if n, err := layer.DiskUsage(t.Context(), dst); err != nil || n.Bytes == 0 {
		t.Errorf("%+v, %v", n, err)
	}
	flat := t.TempDir()
	t.Cleanup(func() { open(flat) })
	if stats, err := layer.Flatten(t.Context(), flat, []string{dst}); err != nil || stats.Files != 3 {
		t.Errorf("%+v %v", stats, err)
	}

	// What the helper has seen, this process and the next helper know again: only what is new is copied.
	write(filepath.Join(upper, "new"), "1", 0o644)
	next := t.TempDir()
	t.Cleanup(func() { open(next) })
	second, stats, err := layer.Delta(t.Context(), upper, next, aged(index))
	if err != nil || stats.Files != 1 || !slices.Equal(ls(t, next), []string{"new"}) {
		t.Errorf("%+v %v, %v", stats, err, ls(t, next))
	}
	open(upper)
	if sum, n, err := layer.Hash(t.Context(), dst); err != nil || n == 0 {
		t.Errorf("%s %d %v", sum, n, err)
	} else {
		for _, name := range []string{"closed", "closed/inner", "fixed", "file"} { // change what is no obstacle: the sum is another one only by that
			if err := os.Chmod(filepath.Join(dst, name), map[string]os.FileMode{"closed": 0o700, "closed/inner": 0o300, "fixed": 0o555}[name]); err != nil {
				t.Error(err)
			}
		}
		if err := os.Chmod(filepath.Join(dst, "closed"), 0); err != nil {
			t.Error(err)
		}
		if again, _, err := layer.Hash(t.Context(), dst); err != nil || again != sum {
			t.Errorf("%s, then %s: %v", sum, again, err)
		}
	}
	third := t.TempDir()
	if _, stats, err = layer.Delta(t.Context(), upper, third, aged(second)); err != nil || stats.Files != 0 {
		t.Errorf("by itself: %+v %v, %v", stats, err, ls(t, third))
	}
}

// aged makes an index count as taken long after the last change, as if somebody had waited.
func aged(x layer.Index) layer.Index {
	x.Taken = x.Taken.Add(1e9)
	return x
}

func ls(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
