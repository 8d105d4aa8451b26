package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
)

// Usable reads every byte of a checkpoint that restoring it would need, and returns its manifest. In contrast to Checkpoint it does not mind damage that a
// restore gets around: of a durable memory image there are two. What is left of it is in place then. Error: checkpoint_corrupt, checkpoint_missing.
func (v *Verification) Usable(ctx context.Context, c id.Checkpoint, manifestHash string) (Manifest, error) {
	s := v.s
	m, err := s.Read(c, manifestHash)
	if err != nil {
		return m, err
	}
	sealed, err := s.readSealOf(c)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		sealed = seal{} // then the layers' own seals
	}
	if err := v.files(ctx, m, sealed.Layers); err != nil {
		return m, err
	}
	if m.Memory == nil {
		return m, nil
	}
	defer s.hold(c)()
	s.forget(c)
	return m, s.provide(ctx, m)
}

// Files reads the file layers that a checkpoint of the given id is said to stand on. Error: checkpoint_corrupt.
func (v *Verification) Files(ctx context.Context, c id.Checkpoint, layers []id.Layer) error {
	return v.files(ctx, Manifest{ID: c, Layers: layers, Boot: v.s.boot}, nil)
}

// files compares layers with the hashes that the checkpoint's seal has of them, or else with those of their own seals. What the machine may have
// torn since, and nobody has sealed, is damaged.
func (v *Verification) files(ctx context.Context, m Manifest, sealed map[id.Layer]string) error {
	for _, l := range m.Layers {
		hash, _, err := v.layer(ctx, l)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return corrupt(m.ID, "file layer %s is missing", l)
		}
		if err != nil {
			return corrupt(m.ID, "file layer %s cannot be read: %v", l, err)
		}
		want, known := sealed[l]
		if !known {
			own, err := readSeal[layerSeal](filepath.Join(v.s.dirs.Layer(l), sealName))
			if want, known = own.Hash, err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
				return corrupt(m.ID, "the seal of file layer %s cannot be read: %v", l, err)
			}
		}
		if known && hash != want {
			return corrupt(m.ID, "file layer %s has been changed", l)
		}
		if !known && v.s.torn(m) {
			return corrupt(m.ID, "the machine went down before file layer %s was on stable storage", l)
		}
	}
	return nil
}

// torn says whether the machine has gone down since a checkpoint was written, and it had not been synced.
func (s *Store) torn(m Manifest) bool {
	if m.Boot == s.boot && s.boot != "" {
		return false
	}
	_, err := os.Stat(filepath.Join(s.dirs.Checkpoint(m.ID), syncedName))
	return err != nil
}

// layer hashes a layer, once for all checkpoints. It returns how many bytes were read for it now.
func (v *Verification) layer(ctx context.Context, l id.Layer) (hash string, read int64, err error) {
	if hash, known := v.layers[l]; known {
		return hash, 0, nil
	}
	hash, read, err = layer.Hash(ctx, v.s.dirs.LayerFS(l))
	if err == nil {
		v.layers[l] = hash
	}
	return hash, read, err
}
