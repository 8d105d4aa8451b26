package gvisor_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/sandboxtest"
)

// An image knows which files of the host its processes have mapped, also after a restore in which they were not touched, and is refused
// when one is another.
func TestImageIsRefusedWhenTheHostHasChanged(t *testing.T) {
	bin := sandboxtest.Build(t)
	driver := gvisor.New(gvisor.Options{Engine: bin.Engine, Guest: bin.Guest, Cache: t.TempDir()})
	if caps := driver.Capabilities(t.Context()); !caps.Available {
		t.Skipf("gVisor cannot run here: %v", caps.Missing)
	}
	dir := t.TempDir()
	mkdir := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	upper := mkdir("upper")
	spec := func() sandbox.Spec {
		sid := id.NewSandbox()
		return sandbox.Spec{
			ID: sid, Session: "sess_a", StateDir: mkdir(string(sid)), SpoolDir: mkdir("spool"), Hostname: "a",
			Root: sandbox.Root{Image: "host", Upper: upper, Work: mkdir("work-" + string(sid))},
		}
	}
	s, err := driver.Start(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	end := func(s sandbox.Sandbox) {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	_, err = s.Execs().Start(t.Context(), sandbox.ExecSpec{ID: id.NewExec(), Kind: sandbox.ExecProcess, Argv: []string{"/usr/bin/sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	save := func(s sandbox.Sandbox, name string) (sandbox.Image, map[string]any) {
		t.Helper()
		warm, err := s.Checkpoint(t.Context(), sandbox.CheckpointRequest{Dir: mkdir(name)})
		if err != nil {
			t.Fatal(err)
		}
		var files map[string]any
		text, err := os.ReadFile(filepath.Join(dir, name, "host-files.json"))
		if err == nil {
			err = json.Unmarshal(text, &files)
		}
		if err != nil {
			t.Fatal(err)
		}
		return warm.Image(), files
	}
	_, files := save(s, "first")
	image, _ := save(s, "once more")
	if names := slices.Sorted(maps.Keys(files)); !slices.Contains(names, "/usr/bin/sleep") {
		t.Errorf("mapped: %q", names)
	}
	end(s)
	if s, err = driver.Restore(t.Context(), spec(), image); err != nil {
		t.Fatal(err)
	}
	second, again := save(s, "second")
	for name := range files {
		if again[name] == nil {
			t.Errorf("%s is forgotten after a restore", name)
		}
	}
	end(s)
	again["/usr/bin/sleep"] = map[string]any{"Size": 1, "ModTime": 1} // as it was before an upgrade
	text, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second.Dir, "host-files.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = driver.Restore(t.Context(), spec(), second); err == nil {
		end(s)
	}
	if errdefs.CodeOf(err) != sandbox.ImageRefused {
		t.Errorf("restored with another /usr/bin/sleep: %v", err)
	}
}
