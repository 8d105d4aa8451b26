// Package workspace keeps the files of a session's computer: which layers it stands on and which upper directory is live.
//
// A workspace moves through generations. Each has its own empty upper directory over a fixed list of layers, and is used by one
// sandbox at a time: a rollback or a resume begins a new generation beside the old one and switches to it only when the new sandbox
// answers, so that a failure changes nothing.
//
// Two ways make a layer of a live upper. Delta copies what changed since the last time and leaves the upper in use. Seal renames
// the upper itself, which costs nothing whatever its size, and ends the generation.
//
// # Guarantees
//
//   - workspace.json always names a generation that exists, or none.
//   - A layer directory is complete before anything refers to it, and never changes afterwards.
//   - Calls for one workspace must not overlap; different workspaces are independent.
package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/sandbox"
)

// Generation is one upper directory over a list of layers.
type Generation struct {
	Number int        `json:"number"`
	Layers []id.Layer `json:"layers"` // below the upper, bottom first
	Deltas []id.Layer `json:"deltas"` // copies of the upper's changes so far, bottom first
}

// Chain is the list of layers, bottom first, that shows what the upper showed when the last delta was taken.
func (g Generation) Chain() []id.Layer { return slices.Concat(g.Layers, g.Deltas) }

// Workspace is the files of one session.
type Workspace struct {
	dirs  Dirs
	home  string
	image string
	state state

	// lastIndex is what the upper looked like when lastLayer, a delta, was made of it.
	lastIndex layer.Index
	lastLayer id.Layer
}

// state is workspace.json.
type state struct {
	Current *Generation `json:"current"` // nil: none is live
	Next    int         `json:"next"`    // number of the next generation
}

// Open reads a session's workspace. It makes nothing, so that whoever looks at a session that is being deleted does not bring its directory
// back: one that is not there is empty, and made by Begin.
func Open(dirs Dirs, session id.Session, image string) (*Workspace, error) {
	w := &Workspace{dirs: dirs, home: home(dirs, session), image: image}
	return w, w.read()
}

// Live returns the live generation of a session's workspace, if there is one.
func Live(dirs Dirs, session id.Session) (Generation, bool, error) {
	w, err := Open(dirs, session, "")
	if err != nil {
		return Generation{}, false, err
	}
	g, ok := w.Current()
	return g, ok, nil
}

func home(dirs Dirs, session id.Session) string {
	return filepath.Join(dirs.Session(session), "workspace")
}

// read reads what has been written of the workspace, if anything.
func (w *Workspace) read() error {
	b, err := os.ReadFile(w.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &w.state)
	}
	if err != nil {
		return errdefs.Wrap(err, errdefs.Corrupt, "workspace_corrupt", "cannot read %s", w.file())
	}
	return nil
}

func (w *Workspace) file() string { return filepath.Join(w.home, "workspace.json") }

func (w *Workspace) dir(gen int) string { return filepath.Join(w.home, strconv.Itoa(gen)) }

// Current returns the live generation, if there is one.
func (w *Workspace) Current() (Generation, bool) {
	if w.state.Current == nil {
		return Generation{}, false
	}
	return *w.state.Current, true
}

// Begin makes a generation over the given layers, bottom first. It is not the current one until Switch. With flat, for drivers that
// cannot stack layers, the layers' files are copied into the upper, which then stands alone. A long list is shortened by merging.
func (w *Workspace) Begin(ctx context.Context, layers []id.Layer, flat bool) (Generation, error) {
	for _, l := range layers {
		if _, err := os.Stat(w.dirs.LayerFS(l)); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return Generation{}, errdefs.New(errdefs.Corrupt, "layer_missing", "file layer %s is missing", l).
					WithHint("perdure recover S goes to the newest state that verifies")
			}
			return Generation{}, fmt.Errorf("look at file layer %s: %w", l, err)
		}
	}
	if !flat {
		var err error
		if layers, err = w.squash(ctx, layers); err != nil {
			return Generation{}, fmt.Errorf("merge file layers: %w", err)
		}
	}
	if err := os.MkdirAll(w.home, 0o700); err != nil {
		return Generation{}, err
	}
	if w.state.Next == 0 {
		spread(w.home)
	}
	g := Generation{Number: w.state.Next, Layers: slices.Clone(layers)}
	w.state.Next++
	if err := WriteJSON(w.file(), w.state); err != nil {
		return Generation{}, err
	}
	w.dirs.At("workspace.begin")
	for _, name := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(w.dir(g.Number), name), 0o755); err != nil {
			return Generation{}, err
		}
	}
	if flat {
		if _, err := layer.Flatten(ctx, filepath.Join(w.dir(g.Number), "upper"), w.Paths(layers)); err != nil {
			return Generation{}, errors.Join(err, w.Discard(g))
		}
		g.Layers = nil
	}
	return g, nil
}

// Switch makes g the current generation. It does not delete the one before, which Seal or Discard may still be called for.
func (w *Workspace) Switch(g Generation) error {
	next := w.state
	next.Current = &g
	w.dirs.At("workspace.switch")
	return w.save(next)
}

// Close leaves the workspace without a live generation.
func (w *Workspace) Close() error {
	next := w.state
	next.Current = nil
	w.dirs.At("workspace.close")
	return w.save(next)
}

func (w *Workspace) save(next state) error {
	if err := WriteJSON(w.file(), next); err != nil {
		return err
	}
	w.state = next
	return nil
}

// Discard deletes a generation that is not the current one.
func (w *Workspace) Discard(g Generation) error {
	if c := w.state.Current; c != nil && c.Number == g.Number {
		return errdefs.New(errdefs.Internal, "workspace_in_use", "generation %d is in use", g.Number)
	}
	return w.dirs.Trash(w.dir(g.Number))
}

// Root says how to mount a generation.
func (w *Workspace) Root(g Generation) sandbox.Root {
	r := sandbox.Root{
		Image: w.image,
		Upper: filepath.Join(w.dir(g.Number), "upper"),
		Work:  filepath.Join(w.dir(g.Number), "work"),
	}
	for _, l := range slices.Backward(g.Layers) {
		r.Layers = append(r.Layers, w.dirs.LayerFS(l))
	}
	return r
}

// Delta copies what changed in the current upper since the last delta into a new layer. The upper must stand still. The layer joins the
// generation's chain only with Keep.
func (w *Workspace) Delta(ctx context.Context) (Pending, error) {
	g, ok := w.Current()
	if !ok {
		return Pending{}, errdefs.New(errdefs.Internal, "workspace_not_live", "the workspace has no live files")
	}
	p := Pending{w: w, Layer: id.NewLayer()}
	since, known := w.indexOf(g)
	p.whole = !known // nobody knows what the last delta saw: this one holds all, and stands alone
	if err := os.MkdirAll(w.dirs.LayerFS(p.Layer), 0o755); err != nil {
		return Pending{}, err
	}
	var err error
	p.index, p.Stats, err = layer.Delta(ctx, filepath.Join(w.dir(g.Number), "upper"), w.dirs.LayerFS(p.Layer), since)
	if err != nil {
		return Pending{}, errors.Join(err, p.Drop())
	}
	return p, nil
}

// indexOf returns what the upper looked like at the generation's last delta.
func (w *Workspace) indexOf(g Generation) (layer.Index, bool) {
	if len(g.Deltas) == 0 {
		return layer.Index{}, false
	}
	last := g.Deltas[len(g.Deltas)-1]
	if w.lastLayer == last {
		return w.lastIndex, true
	}
	return layer.ReadIndex(w.indexFile(g, last))
}

// indexFile names the index by the delta that it belongs to, so that a crash never leaves one that speaks of another.
func (w *Workspace) indexFile(g Generation, delta id.Layer) string {
	return filepath.Join(w.dir(g.Number), "index-"+string(delta))
}

// Pending is a new layer that belongs to nothing yet.
type Pending struct {
	Layer id.Layer
	Stats layer.Stats
	w     *Workspace
	index layer.Index
	whole bool
}

// Keep adds the layer to the current generation's chain, and returns the chain.
func (p Pending) Keep() ([]id.Layer, error) {
	next := p.w.state
	g := *next.Current
	if err := p.index.WriteFile(p.w.indexFile(g, p.Layer)); err != nil {
		return nil, err
	}
	old := g.Deltas
	g.Deltas = append(slices.Clone(old), p.Layer)
	if p.whole {
		g.Deltas = []id.Layer{p.Layer}
	}
	next.Current = &g
	p.w.dirs.At("workspace.keep")
	if err := p.w.save(next); err != nil {
		return nil, err
	}
	p.w.lastLayer, p.w.lastIndex = p.Layer, p.index
	if len(old) > 0 {
		os.Remove(p.w.indexFile(g, old[len(old)-1])) // or it goes with the generation
	}
	return g.Chain(), nil
}

// Drop deletes the layer.
func (p Pending) Drop() error {
	if p.Layer == "" {
		return nil
	}
	return p.w.dirs.Trash(p.w.dirs.Layer(p.Layer))
}

// Seal turns the upper of a generation whose sandbox is gone into a layer of the given id, which is chosen beforehand so that a crash
// can be recovered from: sealing again is harmless. It returns the chain that the layer completes.
func (w *Workspace) Seal(g Generation, as id.Layer) ([]id.Layer, error) {
	chain := append(slices.Clone(g.Layers), as)
	upper := filepath.Join(w.dir(g.Number), "upper")
	if err := os.MkdirAll(w.dirs.Layer(as), 0o700); err != nil {
		return nil, err
	}
	w.dirs.At("workspace.seal")
	if err := os.Rename(upper, w.dirs.LayerFS(as)); err != nil {
		if _, serr := os.Stat(w.dirs.LayerFS(as)); errors.Is(err, fs.ErrNotExist) && serr == nil {
			return chain, nil
		}
		return nil, fmt.Errorf("seal the files of generation %d: %w", g.Number, err)
	}
	if err := SyncDir(w.dirs.Layer(as)); err != nil {
		return nil, err
	}
	return chain, nil
}

// Live returns the directories, bottom first, that show the present files: the chain, and the live upper if there is one.
func (w *Workspace) Live() []string {
	g, ok := w.Current()
	if !ok {
		return nil
	}
	return append(w.Paths(g.Layers), filepath.Join(w.dir(g.Number), "upper"))
}

// Paths returns the directories of layers.
func (w *Workspace) Paths(layers []id.Layer) []string {
	out := make([]string, len(layers))
	for i, l := range layers {
		out[i] = w.dirs.LayerFS(l)
	}
	return out
}

// Sweep deletes every generation but the current one: what a crash left.
func (w *Workspace) Sweep() error {
	entries, err := os.ReadDir(w.home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		n, nerr := strconv.Atoi(e.Name())
		if nerr != nil || w.state.Current != nil && n == w.state.Current.Number {
			continue
		}
		if terr := w.dirs.Trash(w.dir(n)); err == nil {
			err = terr
		}
	}
	return err
}
