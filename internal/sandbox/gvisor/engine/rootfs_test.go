package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Kernels before 6.7 take all layers in one string of at most a page. An image and its checkpoints have more of them than paths fit in.
func TestOverlayAtOnceTakesManyLayers(t *testing.T) {
	if inUserNamespace() || os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir := t.TempDir()
	mkdir := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var lower []string
	for i := range 100 {
		l := mkdir(fmt.Sprintf("layers/with a long name: number, %d of those that there are/fs", i))
		if err := os.WriteFile(filepath.Join(l, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		lower = append(lower, l)
	}
	target := mkdir("root")
	if err := overlayAtOnce(target, lower, mkdir("upper"), mkdir("work")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(target, 0); err != nil {
			t.Error(err)
		}
	}()
	names, err := os.ReadDir(target)
	if err != nil || len(names) != 100 {
		t.Errorf("%d files, %v", len(names), err)
	}
}
