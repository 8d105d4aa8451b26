package workspace

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/blake3"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
)

// maxStack is how many layers are mounted at most. The kernel takes 500 (OVL_MAX_STACK), and looking up a path asks each.
const maxStack = 48

// keepOnTop is how many layers, those on top, are left as they are when the ones below are merged. They are the ones that other
// checkpoints are likely to share.
const keepOnTop = 8

// squash returns a list of layers, bottom first, that shows the same and is at most maxStack long. What it merges it keeps as a layer of its
// own, whose name follows from the names of its parts: the next who needs it finds it.
func (w *Workspace) squash(ctx context.Context, layers []id.Layer) ([]id.Layer, error) {
	if len(layers) <= maxStack {
		return layers, nil
	}
	below := layers[:len(layers)-keepOnTop]
	merged := mergedName(below)
	if _, err := os.Stat(w.dirs.LayerFS(merged)); errors.Is(err, fs.ErrNotExist) {
		if err := w.merge(ctx, below, merged); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	return slices.Concat([]id.Layer{merged}, layers[len(below):]), nil
}

func mergedName(layers []id.Layer) id.Layer {
	var names strings.Builder
	for _, l := range layers {
		names.WriteString(string(l))
		names.WriteByte('\n')
	}
	sum := blake3.Sum256([]byte(names.String()))
	return id.Layer("lyrm_" + hex.EncodeToString(sum[:16]))
}

// merge makes the layer beside and moves it to its name when it is complete.
func (w *Workspace) merge(ctx context.Context, below []id.Layer, as id.Layer) error {
	beside := w.dirs.Layer(id.NewLayer())
	if err := os.MkdirAll(filepath.Join(beside, "fs"), 0o755); err != nil {
		return err
	}
	_, err := layer.Merge(ctx, filepath.Join(beside, "fs"), w.Paths(below))
	if err == nil {
		err = layer.Sync(beside) // its name is all that the next one looks at
	}
	if err == nil {
		err = os.Rename(beside, w.dirs.Layer(as))
	}
	if err == nil {
		err = SyncDir(w.dirs.Layers())
	}
	if err != nil {
		err = errors.Join(err, w.dirs.Trash(beside))
		if _, serr := os.Stat(w.dirs.LayerFS(as)); serr == nil && ctx.Err() == nil {
			return nil // somebody else was faster
		}
	}
	return err
}
