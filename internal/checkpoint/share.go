package checkpoint

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/snapshot"
)

// storedFile is a file of an image in the store.
type storedFile struct {
	lineage snapshot.Lineage
	file    File
}

// storeFiles adds the files of m's image to a draft: those that another image of the lineage has without reading them. What it returns is to be
// called when the draft has ended.
func (s *Store) storeFiles(ctx context.Context, d *snapshot.Draft, m Manifest) (done func(), err error) {
	opened := map[id.Checkpoint]*snapshot.Snapshot{}
	done = func() {
		for _, image := range opened {
			if image != nil {
				image.Close()
			}
		}
	}
	for _, f := range m.Memory.Files {
		if of := s.storedIn(m, f); of != "" {
			image, known := opened[of]
			if !known {
				if image, err = s.openStored(ctx, m.lineage(), of); err != nil {
					return done, err
				}
				opened[of] = image
			}
			if image != nil && d.AdoptStream(image, f.Name) {
				continue
			}
		}
		if err := s.storeFile(ctx, d, m, f); err != nil {
			return done, err
		}
	}
	return done, nil
}

// storedIn names a checkpoint whose stored image has the file, if one is known. The file is the one that m has: its directory is looked at, since the
// other may have been damaged, or this one.
func (s *Store) storedIn(m Manifest, f File) id.Checkpoint {
	path := filepath.Join(s.memoryDir(m.ID), f.Name)
	at, now, err := look(path)
	if err != nil {
		return ""
	}
	if hash, ok := s.contents.seen(at, now, path); !ok || hash != f.Hash {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored[storedFile{m.lineage(), f}]
}

// openStored returns a stored image, nil if it cannot be had.
func (s *Store) openStored(ctx context.Context, l snapshot.Lineage, c id.Checkpoint) (*snapshot.Snapshot, error) {
	image, err := s.images.Open(ctx, l, string(c))
	switch errdefs.CodeOf(err) {
	case snapshot.CodeNotFound, snapshot.CodeCorrupt, snapshot.CodeKeyMissing:
		return nil, nil // not there yet, or not any more: then the files are
	}
	return image, err
}

// noteStored remembers that m's image is in the store.
func (s *Store) noteStored(m Manifest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range m.Memory.Files {
		s.stored[storedFile{m.lineage(), f}] = m.ID
	}
}

// forgetStored forgets what was remembered of images, if its argument says so.
func (s *Store) forgetStored(gone func(l snapshot.Lineage, c id.Checkpoint) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, c := range s.stored {
		if gone(f.lineage, c) {
			delete(s.stored, f)
		}
	}
}

func (s *Store) storeFile(ctx context.Context, d *snapshot.Draft, m Manifest, want File) error {
	f, err := os.OpenFile(filepath.Join(s.memoryDir(m.ID), want.Name), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return corrupt(m.ID, "%s of its memory image cannot be read: %v", want.Name, err)
	}
	defer f.Close()
	h := blake3.New()
	ref, err := d.Add(ctx, want.Name, io.TeeReader(contextReader{ctx, f}, h))
	if err != nil {
		return err
	}
	if ref.Size != want.Size || hex.EncodeToString(h.Sum(nil)) != want.Hash {
		return corrupt(m.ID, "%s of its memory image has been changed", want.Name)
	}
	return nil
}

// place puts a file of an image where it belongs: a link if another image has it as a file, else from the store.
func (s *Store) place(ctx context.Context, image *snapshot.Snapshot, to string, want File) error {
	if from := s.contents.elsewhere(ctx, want.Hash); from != "" {
		err := os.Link(from, to)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EMLINK) {
			return err
		}
	}
	return extract(ctx, image, to, want)
}
