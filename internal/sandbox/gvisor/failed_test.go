package gvisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/sandboxtest"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// TestL1_FailedStartLeavesNoControlGroup gives a sandbox so little memory that the kernel kills the shim while it makes it, so that nobody
// in there can clean up.
func TestL1_FailedStartLeavesNoControlGroup(t *testing.T) {
	bin := sandboxtest.Build(t)
	dir := t.TempDir()
	d := gvisor.New(gvisor.Options{Engine: bin.Engine, Guest: bin.Guest, Cache: filepath.Join(dir, "cache")})
	for _, m := range d.Capabilities(t.Context()).Missing {
		if strings.HasPrefix(m, "limits") || strings.HasPrefix(m, "sandbox") {
			t.Skip(m)
		}
	}
	spec := sandbox.Spec{ID: id.NewSandbox(), Session: id.NewSession(), Hostname: "small", Limits: sandbox.Limits{MemoryBytes: 1}, Root: sandbox.Root{Image: "host"}}
	for name, path := range map[string]*string{"state": &spec.StateDir, "spool": &spec.SpoolDir, "upper": &spec.Root.Upper, "work": &spec.Root.Work} {
		*path = filepath.Join(dir, name)
		if err := os.Mkdir(*path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := d.Start(t.Context(), spec); err == nil {
		t.Errorf("it started")
		if err := s.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left := shim.Cgroups(spec.ID); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
