package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/workspace"
)

// layerSeal is LAYER/seal.json: the hash of a layer's content.
type layerSeal struct {
	Hash  string `json:"hash"`
	Bytes int64  `json:"bytes"`
}

// seal is CKPT/seal.json.
type seal struct {
	Manifest string              `json:"manifest"` // its hash
	Layers   map[id.Layer]string `json:"layers"`
	Image    bool                `json:"image,omitempty"` // its memory is in the store of images
}

// Seal makes a committed checkpoint durable: everything of it is brought to stable storage, its layers are hashed, and its memory goes into the store of
// images.
// Layers that another checkpoint sealed are not read again.
//
// What is written reaches stable storage only here, so that a machine that goes down before may leave files short or empty which the
// manifest names. A checkpoint of an earlier boot that has no mark of having been synced is therefore checked first: its memory against
// the manifest's hashes. For layers that nobody has sealed there is nothing to check against; with those, it is not made durable. The
// error is checkpoint_corrupt then.
//
// The sync is not cut short by ctx: a daemon that stops leaves its checkpoints marked.
func (s *Store) Seal(ctx context.Context, m Manifest) error {
	synced := filepath.Join(s.dirs.Checkpoint(m.ID), syncedName)
	if m.Boot != s.boot || s.boot == "" {
		if _, err := os.Stat(synced); errors.Is(err, fs.ErrNotExist) {
			if err := s.checkTorn(ctx, m); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
	}
	if err := layer.Sync(s.dirs.Root); err != nil {
		return err
	}
	// Not synced itself: where the mark is lost, the checkpoint is checked once more.
	if err := os.WriteFile(synced, nil, 0o600); err != nil {
		return err
	}
	_, hash, err := m.encode()
	if err != nil {
		return err
	}
	out := seal{Manifest: hash, Layers: map[id.Layer]string{}}
	for _, l := range m.Layers {
		ls, err := s.sealLayer(ctx, l)
		if _, serr := os.Stat(s.dirs.LayerFS(l)); err != nil && errors.Is(serr, fs.ErrNotExist) {
			return corrupt(m.ID, "file layer %s is missing", l)
		}
		if err != nil {
			return err
		}
		out.Layers[l] = ls.Hash
	}
	if m.Memory != nil {
		if err := s.storeImage(ctx, m); err != nil {
			return err
		}
		out.Image = true
	}
	s.dirs.At("checkpoint.seal")
	return workspace.WriteJSON(filepath.Join(s.dirs.Checkpoint(m.ID), sealName), out)
}

// checkTorn looks at a checkpoint that was written before the machine went down.
func (s *Store) checkTorn(ctx context.Context, m Manifest) error {
	if m.Memory != nil {
		stored, err := s.isStored(ctx, m)
		if err == nil && !stored {
			s.forget(m.ID)
			err = s.checkMemory(ctx, m, s.memoryDir(m.ID))
		}
		if err != nil {
			return err
		}
	}
	for _, l := range m.Layers {
		if _, err := os.Stat(filepath.Join(s.dirs.Layer(l), sealName)); errors.Is(err, fs.ErrNotExist) {
			return corrupt(m.ID, "the machine went down before file layer %s was on stable storage", l)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sealLayer(ctx context.Context, l id.Layer) (layerSeal, error) {
	name := filepath.Join(s.dirs.Layer(l), sealName)
	ls, err := readSeal[layerSeal](name)
	if !errors.Is(err, fs.ErrNotExist) {
		return ls, err
	}
	if ls.Hash, ls.Bytes, err = layer.Hash(ctx, s.dirs.LayerFS(l)); err != nil {
		return ls, err
	}
	return ls, workspace.WriteJSON(name, ls)
}

func readSeal[T any](name string) (T, error) {
	var v T
	b, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

func (s *Store) readSealOf(c id.Checkpoint) (seal, error) {
	sealed, err := readSeal[seal](filepath.Join(s.dirs.Checkpoint(c), sealName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = corrupt(c, "its seal cannot be read: %v", err)
	}
	return sealed, err
}

// Verification checks checkpoints together: what they share is read once.
type Verification struct {
	s      *Store
	layers map[id.Layer]string // by their hashes
	images map[inode]struct{}  // files of memory images that were read
}

// Verification begins one. It is for one goroutine.
func (s *Store) Verification() *Verification {
	return &Verification{s: s, layers: map[id.Layer]string{}, images: map[inode]struct{}{}}
}

// Checkpoint reads every byte of a checkpoint, but file layers that were read for another. It returns how much that was, and the first thing
// that is wrong.
func (v *Verification) Checkpoint(ctx context.Context, c id.Checkpoint, manifestHash string) (int64, error) {
	s := v.s
	m, err := s.Read(c, manifestHash)
	if err != nil {
		return 0, err
	}
	total := m.MemoryBytes()
	sealed, err := s.readSealOf(c)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return total, err
	}
	durable := err == nil
	if m.Memory != nil {
		if err := s.verifyImage(ctx, m, sealed.Image, v.images); err != nil {
			return total, err
		}
	}
	if _, hash, err := m.encode(); durable && (err != nil || hash != sealed.Manifest) {
		return total, corrupt(c, "its seal is for another manifest")
	}
	for _, l := range m.Layers {
		hash, n, err := v.layer(ctx, l)
		total += n
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		if err != nil {
			return total, corrupt(c, "file layer %s cannot be read: %v", l, err)
		}
		if durable && hash != sealed.Layers[l] {
			return total, corrupt(c, "file layer %s has been changed", l)
		}
	}
	if !durable {
		return total, v.files(ctx, m, nil)
	}
	return total, nil
}
