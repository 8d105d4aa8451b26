package layer_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/layer"
)

// A program inside may set attributes of the user name space as it likes. To the kernel's privileged overlay they mean nothing.
func TestProgramsCannotHideFilesFromLayers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without privileges the name space of programs is all that there is")
	}
	const name = "user.overlay.opaque"
	below, dst := mkdir(t), filepath.Join(mkdir(t), "flat")
	for _, dir := range []string{filepath.Join(below, "d"), dst} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(below, "d/kept"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := mount(t, mkdir(t), []string{below})
	if err := unix.Setxattr(filepath.Join(o.merged, "d"), name, []byte("y"), 0); err != nil {
		t.Skipf("the file system has no user attributes: %v", err)
	}
	if err := os.WriteFile(filepath.Join(o.merged, "d/new"), []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	top := mkdir(t)
	if _, _, err := layer.Delta(t.Context(), o.upper, top, layer.Index{}); err != nil {
		t.Fatal(err)
	}
	if _, err := layer.Flatten(t.Context(), dst, []string{below, top}); err != nil {
		t.Fatal(err)
	}
	sameTree(t, "the layers", dst, o.merged)
	var value [8]byte
	if n, err := unix.Getxattr(filepath.Join(dst, "d"), name, value[:]); err != nil || string(value[:n]) != "y" {
		t.Errorf("the program's own attribute: %q, %v", value[:max(n, 0)], err)
	}
	diff, err := layer.Diff(t.Context(), "", []string{below}, []string{below, top})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range diff {
		if d.Op == layer.Removed {
			t.Errorf("%s counts as removed", d.Path)
		}
	}
}
