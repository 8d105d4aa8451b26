package gvisor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/sandboxtest"
)

// rig is a driver with the directories of one session's sandboxes.
type rig struct {
	*gvisor.Driver
	t   *testing.T
	dir string
}

// newRig skips the test where gVisor cannot run.
func newRig(t *testing.T) *rig {
	t.Helper()
	bin := sandboxtest.Build(t)
	r := &rig{gvisor.New(gvisor.Options{Engine: bin.Engine, Guest: bin.Guest, Cache: t.TempDir()}), t, t.TempDir()}
	if caps := r.Capabilities(t.Context()); !caps.Available {
		t.Skipf("gVisor cannot run here: %v", caps.Missing)
	}
	return r
}

func (r *rig) mkdir(name string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// spec describes a sandbox over the files of those before.
func (r *rig) spec() sandbox.Spec {
	r.t.Helper()
	sid := id.NewSandbox()
	return sandbox.Spec{
		ID: sid, Session: "sess_a", StateDir: r.mkdir(string(sid)), SpoolDir: r.mkdir("spool"), Hostname: "a",
		Root: sandbox.Root{Image: "host", Upper: r.mkdir("upper"), Work: r.mkdir("work-" + string(sid))},
	}
}

func (r *rig) end(s sandbox.Sandbox) {
	r.t.Helper()
	if err := s.Destroy(context.WithoutCancel(r.t.Context())); err != nil {
		r.t.Error(err)
	}
}
