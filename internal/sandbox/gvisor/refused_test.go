package gvisor_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// An image knows which files of the host its processes have mapped, also after a restore in which they were not touched, and is refused
// when one is another.
func TestImageIsRefusedWhenTheHostHasChanged(t *testing.T) {
	r := newRig(t)
	s, err := r.Start(t.Context(), r.spec())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Execs().Start(t.Context(), sandbox.ExecSpec{ID: id.NewExec(), Kind: sandbox.ExecProcess, Argv: []string{"/usr/bin/sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	save := func(s sandbox.Sandbox, name string) (sandbox.Image, map[string]any) {
		t.Helper()
		warm, err := s.Checkpoint(t.Context(), sandbox.CheckpointRequest{Dir: r.mkdir(name)})
		if err != nil {
			t.Fatal(err)
		}
		var files map[string]any
		text, err := os.ReadFile(filepath.Join(r.dir, name, "host-files.json"))
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
	r.end(s)
	if s, err = r.Restore(t.Context(), r.spec(), image); err != nil {
		t.Fatal(err)
	}
	second, again := save(s, "second")
	for name := range files {
		if again[name] == nil {
			t.Errorf("%s is forgotten after a restore", name)
		}
	}
	r.end(s)
	again["/usr/bin/sleep"] = map[string]any{"Size": 1, "ModTime": 1} // as it was before an upgrade
	text, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second.Dir, "host-files.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = r.Restore(t.Context(), r.spec(), second); err == nil {
		r.end(s)
	}
	if errdefs.CodeOf(err) != sandbox.ImageRefused {
		t.Errorf("restored with another /usr/bin/sleep: %v", err)
	}
}
