package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/workspace"
)

func open(t *testing.T) (*workspace.Workspace, workspace.Dirs) {
	t.Helper()
	dirs := workspace.Dirs{Root: t.TempDir()}
	if err := dirs.Make(); err != nil {
		t.Fatal(err)
	}
	return reopen(t, dirs), dirs
}

func reopen(t *testing.T, dirs workspace.Dirs) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(dirs, "sess_test", "host")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func begin(t *testing.T, w *workspace.Workspace, layers []id.Layer) (workspace.Generation, sandbox.Root) {
	t.Helper()
	g, err := w.Begin(t.Context(), layers, false)
	if err != nil {
		t.Fatal(err)
	}
	return g, w.Root(g)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDeltaThenSealGiveTheSameFiles(t *testing.T) {
	w, dirs := open(t)
	g, root := begin(t, w, nil)
	if err := w.Switch(g); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root.Upper, "a"), "1")
	p, err := w.Delta(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chain, err := p.Keep()
	if err != nil || len(chain) != 1 {
		t.Fatalf("chain %v, %v", chain, err)
	}
	write(t, filepath.Join(root.Upper, "b"), "2")
	checkLostIndex(t, dirs, root)

	w = reopen(t, dirs) // a daemon that died in between
	g, ok := w.Current()
	if !ok || len(g.Deltas) != 1 {
		t.Fatalf("after reopening: %+v, %v", g, ok)
	}
	as := id.NewLayer()
	for range 2 { // the second time as after a crash
		if chain, err = w.Seal(g, as); err != nil || len(chain) != 1 || chain[0] != as {
			t.Fatalf("seal: %v, %v", chain, err)
		}
	}
	for name, want := range map[string]string{"a": "1", "b": "2"} {
		if b, err := os.ReadFile(filepath.Join(dirs.LayerFS(as), name)); err != nil || string(b) != want {
			t.Fatalf("%s in the sealed layer: %q, %v", name, b, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root.Upper); !os.IsNotExist(err) {
		t.Fatalf("the generation is still there: %v", err)
	}
}

func TestFailedSwitchLeavesTheOldGeneration(t *testing.T) {
	w, dirs := open(t)
	old, root := begin(t, w, nil)
	if err := w.Switch(old); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root.Upper, "a"), "1")
	next, _ := begin(t, w, nil)
	if err := w.Discard(old); err == nil {
		t.Fatal("the generation in use could be discarded")
	}
	if err := w.Discard(next); err != nil {
		t.Fatal(err)
	}
	g, _ := reopen(t, dirs).Current()
	if g.Number != old.Number {
		t.Fatalf("current is %d, want %d", g.Number, old.Number)
	}
}

func TestMissingLayerIsRefused(t *testing.T) {
	w, _ := open(t)
	_, err := w.Begin(t.Context(), []id.Layer{"lyr_gone"}, false)
	if errdefs.CodeOf(err) != "layer_missing" {
		t.Fatalf("got %v", err)
	}
}

func TestLongStacksAreMerged(t *testing.T) {
	w, dirs := open(t)
	var layers []id.Layer
	for i := range 120 {
		l := id.NewLayer()
		if err := os.MkdirAll(dirs.LayerFS(l), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dirs.LayerFS(l), "last"), fmt.Sprint(i))
		write(t, filepath.Join(dirs.LayerFS(l), fmt.Sprint("own", i)), "x")
		layers = append(layers, l)
	}
	for range 2 { // the second finds what the first merged
		g, root := begin(t, w, layers)
		if len(root.Layers) > 48 {
			t.Fatalf("%d layers are mounted", len(root.Layers))
		}
		if !strings.HasPrefix(string(g.Layers[0]), "lyrm_") || g.Layers[len(g.Layers)-1] != layers[119] {
			t.Fatalf("layers %v", g.Layers)
		}
		bottom := dirs.LayerFS(g.Layers[0])
		if b, err := os.ReadFile(filepath.Join(bottom, "last")); err != nil || string(b) != "111" {
			t.Fatalf("the merged layer says %q, %v", b, err)
		}
		if _, err := os.Stat(filepath.Join(bottom, "own0")); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dirs.Layers())
	if err != nil || len(entries) != 121 {
		t.Fatalf("%d layers on disk, %v; want those and one", len(entries), err)
	}
}

func TestFlatGenerationStandsAlone(t *testing.T) {
	w, dirs := open(t)
	l := id.NewLayer()
	if err := os.MkdirAll(dirs.LayerFS(l), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dirs.LayerFS(l), "a"), "1")
	g, err := w.Begin(t.Context(), []id.Layer{l}, true)
	if err != nil || len(g.Layers) != 0 {
		t.Fatalf("%+v, %v", g, err)
	}
	if b, err := os.ReadFile(filepath.Join(w.Root(g).Upper, "a")); err != nil || string(b) != "1" {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestDamagedStateIsAnError(t *testing.T) {
	w, dirs := open(t)
	g, _ := begin(t, w, nil)
	if err := w.Switch(g); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dirs.Session("sess_test"), "workspace", "workspace.json"), "{")
	if _, err := workspace.Open(dirs, "sess_test", "host"); errdefs.CodeOf(err) != "workspace_corrupt" {
		t.Fatalf("got %v", err)
	}
}

// checkLostIndex takes a delta when the crash of the machine has taken the index: it must hold everything and stand alone.
func checkLostIndex(t *testing.T, dirs workspace.Dirs, root sandbox.Root) {
	t.Helper()
	if err := os.Remove(filepath.Join(root.Upper, "a")); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(root.Upper), "index-*"))
	if err != nil || len(found) != 1 || os.Remove(found[0]) != nil {
		t.Fatalf("indexes %v, %v", found, err)
	}
	w := reopen(t, dirs)
	p, err := w.Delta(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chain, err := p.Keep()
	if err != nil || len(chain) != 1 || chain[0] != p.Layer {
		t.Fatalf("chain %v, %v", chain, err)
	}
	if _, err := os.Lstat(filepath.Join(dirs.LayerFS(p.Layer), "a")); !os.IsNotExist(err) {
		t.Fatalf("the deleted file is in the whole layer: %v", err)
	}
	write(t, filepath.Join(root.Upper, "a"), "1")
}

func TestLookingAtADeletedWorkspaceDoesNotBringItBack(t *testing.T) {
	_, dirs := open(t)
	if err := dirs.Trash(dirs.Session("sess_test")); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := workspace.Live(dirs, "sess_test"); ok || err != nil {
		t.Errorf("of a deleted workspace: %v, %v", ok, err)
	}
	if _, err := os.Stat(dirs.Session("sess_test")); !os.IsNotExist(err) {
		t.Errorf("the directory is there again: %v", err)
	}
}
