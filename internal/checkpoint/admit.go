package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"slices"
)

// Raw returns a manifest as it is stored.
func (m Manifest) Raw() ([]byte, error) {
	b, _, err := m.encode()
	return b, err
}

// Admit makes a checkpoint of what comes from elsewhere, and makes it durable. Its layers are in place. memoryDir has the memory image, which is moved, or is
// "" if m has none. It returns the manifest as it is here, and its hash. If it fails, or the process dies, a checkpoint may be left that nobody knows of.
// Error: checkpoint_corrupt if the image is not what m says.
func (s *Store) Admit(ctx context.Context, m Manifest, memoryDir string) (Manifest, string, error) {
	want := m.Memory
	d, err := s.Begin(m)
	if err != nil {
		return m, "", err
	}
	if want != nil {
		if err := os.Remove(d.MemoryDir()); err != nil {
			return m, "", err
		}
		if err := os.Rename(memoryDir, d.MemoryDir()); err != nil {
			return m, "", err
		}
	}
	hash, err := d.Commit(ctx, want != nil)
	if err != nil {
		return m, "", err
	}
	if want != nil && !slices.Equal(want.Files, d.Manifest.Memory.Files) {
		return m, "", corrupt(m.ID, "its memory image is not what its manifest says")
	}
	return d.Manifest, hash, s.Seal(ctx, d.Manifest)
}

// ImageFiles returns the paths of a memory image's files, in the order of the manifest. The checkpoint is open.
func (o *Opened) ImageFiles() []string {
	var out []string
	if o.Manifest.Memory != nil {
		for _, f := range o.Manifest.Memory.Files {
			out = append(out, filepath.Join(o.Image.Dir, f.Name))
		}
	}
	return out
}
