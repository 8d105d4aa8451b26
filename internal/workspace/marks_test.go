package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/layer"
)

// A daemon that would not see what the layers hide must not show them.
func TestLayersMarkedInAnotherWayAreRefused(t *testing.T) {
	_, dirs := open(t)
	marks := filepath.Join(dirs.Root, "marks")
	if b, err := os.ReadFile(marks); err != nil || string(b) != layer.Marks()+"\n" {
		t.Fatalf("%q %v", b, err)
	}
	if err := os.WriteFile(marks, []byte("other.overlay\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dirs.Make(); err != nil {
		t.Errorf("without a layer: %v", err)
	}
	if err := os.WriteFile(marks, []byte("other.overlay\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dirs.Layer("lyr_1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := dirs.Make(); errdefs.CodeOf(err) != "layers_of_another" {
		t.Errorf("with one: %v", err)
	}
}
