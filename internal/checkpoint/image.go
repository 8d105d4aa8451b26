package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/snapshot"
)

// lineage is the one whose key seals the image, and whose members share what is in it.
func (m Manifest) lineage() snapshot.Lineage {
	return snapshot.Lineage(cmp.Or(m.Lineage, m.SessionID))
}

// imageMeta is what the store of images keeps with an image.
type imageMeta struct {
	Manifest string `json:"manifest"` // its hash
}

// storeImage brings a checkpoint's memory into the store of images. It compares each file with the manifest on the way.
func (s *Store) storeImage(ctx context.Context, m Manifest) error {
	if stored, err := s.isStored(ctx, m); stored || err != nil {
		return err
	}
	_, hash, err := m.encode()
	if err != nil {
		return err
	}
	d, err := s.images.Begin(ctx, m.lineage())
	if err != nil {
		return err
	}
	defer d.Discard()
	if base, err := s.sameImage(ctx, m); err != nil {
		return err
	} else if base != nil {
		defer base.Close()
		d.Adopt(base)
	} else {
		done, err := s.storeFiles(ctx, d, m)
		defer done()
		if err != nil {
			return err
		}
	}
	s.dirs.At("image.stored")
	if _, _, err = d.Commit(ctx, string(m.ID), imageMeta{hash}); err == nil {
		s.noteStored(m)
	}
	return err
}

// isStored says whether the store of images has a checkpoint's memory.
func (s *Store) isStored(ctx context.Context, m Manifest) (bool, error) {
	image, err := s.images.Open(ctx, m.lineage(), string(m.ID))
	switch errdefs.CodeOf(err) {
	case snapshot.CodeNotFound, snapshot.CodeKeyMissing:
		return false, nil
	}
	if err == nil {
		image.Close()
	}
	return err == nil, err
}

// sameImage returns the stored image that m shares, nil if there is none.
func (s *Store) sameImage(ctx context.Context, m Manifest) (*snapshot.Snapshot, error) {
	if m.Memory.Of == "" {
		return nil, nil
	}
	return s.openStored(ctx, m.lineage(), m.Memory.Of)
}

// commitStored commits a draft whose image is only in the store.
func (d *Draft) commitStored(ctx context.Context, of Manifest) (string, error) {
	if err := os.RemoveAll(d.MemoryDir()); err != nil {
		return "", err
	}
	base, err := d.store.images.Open(ctx, of.lineage(), string(of.ID))
	if err != nil {
		return "", err
	}
	defer base.Close()
	draft, err := d.store.images.Begin(ctx, of.lineage())
	if err != nil {
		return "", err
	}
	defer draft.Discard()
	draft.Adopt(base)
	_, hash, err := d.Manifest.encode()
	if err != nil {
		return "", err
	}
	// Before the manifest: the checkpoint has no other image.
	if _, _, err := draft.Commit(ctx, string(d.Manifest.ID), imageMeta{hash}); err != nil {
		return "", err
	}
	return d.write()
}

// hold keeps the memory directory of a checkpoint from being shed until the returned function is called.
func (s *Store) hold(c id.Checkpoint) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[c]++
	done := false
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if done {
			return
		}
		done = true
		if s.held[c]--; s.held[c] == 0 {
			delete(s.held, c)
		}
	}
}

// provide makes sure that the memory directory is there and right. The caller holds it.
func (s *Store) provide(ctx context.Context, m Manifest) error {
	dir := s.memoryDir(m.ID)
	err := s.checkMemory(ctx, m, dir)
	if err == nil {
		now := time.Now()
		return os.Chtimes(dir, now, now) // see Shed
	}
	if ctx.Err() != nil {
		return err
	}
	fetched := s.fetching.DoChan(string(m.ID), func() (any, error) {
		return nil, s.fetch(context.WithoutCancel(ctx), m) // others may wait for it, whose contexts have not ended
	})
	select {
	case r := <-fetched:
		if code := errdefs.CodeOf(r.Err); code == snapshot.CodeNotFound || code == snapshot.CodeKeyMissing {
			return err // it is nowhere else: what is wrong with the files is what is wrong
		}
		if errdefs.KindOf(r.Err) == errdefs.Corrupt && errdefs.CodeOf(r.Err) != "checkpoint_corrupt" {
			return corrupt(m.ID, "its memory image: %v; and its stored one: %v", err, r.Err)
		}
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fetch writes the memory directory from the store of images.
func (s *Store) fetch(ctx context.Context, m Manifest) (err error) {
	image, err := s.images.Open(ctx, m.lineage(), string(m.ID))
	if err != nil {
		return err
	}
	defer image.Close()
	fresh, err := os.MkdirTemp(s.dirs.Checkpoint(m.ID), memoryName+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(fresh))
		}
	}()
	for _, f := range m.Memory.Files {
		if ref, ok := image.Stream(f.Name); !ok || ref.Size != f.Size {
			return corrupt(m.ID, "the stored image is another one")
		}
		if err := s.place(ctx, image, filepath.Join(fresh, f.Name), f); err != nil {
			return err
		}
	}
	dir := s.memoryDir(m.ID)
	if err := s.dirs.Trash(dir); err != nil { // what may be there is damaged
		return err
	}
	s.dirs.At("image.fetched")
	if err := os.Rename(fresh, dir); err != nil {
		return err
	}
	for _, f := range m.Memory.Files { // each has just been verified
		if err := s.contents.has(filepath.Join(dir, f.Name), f.Hash); err != nil {
			return err
		}
	}
	return nil
}

func extract(ctx context.Context, image *snapshot.Snapshot, to string, want File) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(want.Size) // what is not written are zeros
	if err == nil {
		_, err = image.Extract(ctx, want.Name, f)
	}
	return cmp.Or(err, f.Close())
}

// verifyImage reads a checkpoint's memory wherever it is, but for the files that read has, to which it adds.
func (s *Store) verifyImage(ctx context.Context, m Manifest, stored bool, read map[inode]struct{}) error {
	defer s.hold(m.ID)()
	dir := s.memoryDir(m.ID)
	_, err := os.Stat(dir)
	if files := err == nil; files || !stored {
		s.contents.forget(dir, read)
		if err := s.checkMemory(ctx, m, dir); err != nil {
			return err
		}
		for _, f := range m.Memory.Files {
			if at, _, err := look(filepath.Join(dir, f.Name)); err == nil {
				read[at] = struct{}{}
			}
		}
	}
	if !stored {
		return nil
	}
	image, err := s.images.Open(ctx, m.lineage(), string(m.ID))
	if err == nil {
		err = image.Check(ctx)
		image.Close()
	}
	if err != nil && ctx.Err() == nil {
		return corrupt(m.ID, "its stored memory image: %v", err)
	}
	return err
}

// Shed deletes memory directories of durable checkpoints, those first that have not been used for longest, until the rest takes no more than budget bytes
// of disk. Their images are in the store. What is in use stays. It returns the bytes that it freed.
func (s *Store) Shed(ctx context.Context, budget int64) (freed int64, err error) {
	list, total, err := s.cached(ctx)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(list, func(a, b cachedImage) int { return a.used.Compare(b.used) })
	for _, c := range list {
		if total <= budget {
			break
		}
		if !c.stored {
			continue
		}
		gone, err := s.shed(c.id)
		if err != nil {
			return freed, err
		}
		if gone {
			total -= c.bytes
			freed += c.bytes
		}
	}
	return freed, nil
}

// shed takes the directory away, unless it is held.
func (s *Store) shed(c id.Checkpoint) (gone bool, err error) {
	err = s.contents.across(s.memoryDir(c), func() error {
		s.mu.Lock()
		if s.held[c] > 0 {
			s.mu.Unlock()
			return nil
		}
		remove, err := s.dirs.Unlink(s.memoryDir(c))
		s.mu.Unlock()
		if err != nil {
			return err
		}
		gone = true
		return remove()
	})
	return gone, err
}

// cachedImage is a checkpoint with a memory directory.
type cachedImage struct {
	id     id.Checkpoint
	used   time.Time
	bytes  int64 // that deleting it frees: linked files belong to the last
	stored bool
}

func (s *Store) cached(ctx context.Context) (list []cachedImage, total int64, err error) {
	complete, _, err := s.List()
	if err != nil {
		return nil, 0, err
	}
	for _, c := range complete {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		info, err := os.Stat(s.memoryDir(c))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, 0, err
		}
		sealed, err := s.readSealOf(c)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && errdefs.KindOf(err) != errdefs.Corrupt {
			return nil, 0, err
		}
		one := cachedImage{id: c, used: info.ModTime(), stored: err == nil && sealed.Image}
		entries, err := os.ReadDir(s.memoryDir(c))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		} else if err != nil {
			return nil, 0, err
		}
		for _, e := range entries {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(s.memoryDir(c), e.Name()), &st); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, 0, err
			}
			one.bytes += st.Blocks * 512 / int64(max(1, st.Nlink))
		}
		total += one.bytes
		list = append(list, one)
	}
	return list, total, nil
}

// Collect removes chunks that no image needs any more, of the lineages in which something was deleted.
func (s *Store) Collect(ctx context.Context) error {
	s.mu.Lock()
	changed := s.changed
	s.changed = map[snapshot.Lineage]struct{}{}
	s.mu.Unlock()
	var errs []error
	for l := range changed {
		_, err := s.images.Collect(ctx, l)
		if errdefs.CodeOf(err) == snapshot.CodeKeyMissing {
			continue // the whole lineage has gone
		}
		if err != nil {
			errs = append(errs, err)
			s.mu.Lock()
			s.changed[l] = struct{}{}
			s.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// DestroyLineage deletes the images of a session that has been deleted with all its forks, their key first. It does nothing for a session that is not the
// first of its lineage.
func (s *Store) DestroyLineage(ctx context.Context, first id.Session) error {
	s.forgetStored(func(l snapshot.Lineage, _ id.Checkpoint) bool { return l == snapshot.Lineage(first) })
	return s.images.Destroy(ctx, snapshot.Lineage(first))
}

// Unseal removes what Seal may have stored of a checkpoint that was deleted meanwhile; with its lineage, if that is gone too.
func (s *Store) Unseal(ctx context.Context, m Manifest, exists func(first id.Session) (bool, error)) error {
	if m.Memory == nil {
		return nil
	}
	if there, err := exists(id.Session(m.lineage())); err != nil {
		return err
	} else if !there {
		return s.images.Destroy(ctx, m.lineage())
	}
	return s.removeImage(ctx, m)
}

// removeImage deletes a checkpoint's image from the store; its chunks go with the next Collect.
func (s *Store) removeImage(ctx context.Context, m Manifest) error {
	if err := s.images.Delete(ctx, m.lineage(), string(m.ID)); err != nil {
		return err
	}
	s.forgetStored(func(_ snapshot.Lineage, c id.Checkpoint) bool { return c == m.ID })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[m.lineage()] = struct{}{}
	return nil
}

// SweepLineages deletes the images of sessions that are not there any more, as after a crash in the middle of a deletion. It is for a start.
func (s *Store) SweepLineages(ctx context.Context, exists func(first id.Session) (bool, error)) error {
	return s.images.Sweep(ctx, func(l snapshot.Lineage) (bool, error) { return exists(id.Session(l)) })
}
