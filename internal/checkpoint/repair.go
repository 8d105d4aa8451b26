package checkpoint

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/snapshot"
)

// Healed is an image that a repair has brought back.
type Healed struct {
	Checkpoint id.Checkpoint
	Copy       string // CopyFiles or CopyStored
}

// The copies of a memory image.
const (
	CopyFiles  = "files"
	CopyStored = "store"
)

// CheckImages reads all that the store of images has of the lineage that first began.
func (s *Store) CheckImages(ctx context.Context, first id.Session) (snapshot.Report, error) {
	r, err := s.images.Verify(ctx, snapshot.Lineage(first))
	return r, withoutKey(err)
}

// withoutKey passes over the error of a lineage that has nothing in the store.
func withoutKey(err error) error {
	if errdefs.CodeOf(err) == snapshot.CodeKeyMissing {
		return nil
	}
	return err
}

// RepairImages is CheckImages, and heals each of the two copies of an image by the other. ms are the manifests of the lineage's checkpoints that are durable.
// Damaged packs are set aside, below damaged/. What is told is what was found; a CheckImages after it tells what is left. Nothing is deleted that can be
// read, so that it may be cut short.
func (s *Store) RepairImages(ctx context.Context, first id.Session, ms []Manifest) (found snapshot.Report, healed []Healed, err error) {
	found, err = s.images.Repair(ctx, snapshot.Lineage(first))
	if errdefs.CodeOf(err) == snapshot.CodeKeyMissing {
		return found, nil, nil
	}
	if err != nil {
		return found, nil, err
	}
	s.forgetStored(func(l snapshot.Lineage, _ id.Checkpoint) bool { return l == snapshot.Lineage(first) })
	lost := map[string]bool{} // whether it is the manifest
	for _, l := range found.Lost {
		lost[l.Snapshot] = lost[l.Snapshot] || l.Stream == ""
	}
	for _, m := range ms {
		if m.Memory == nil {
			continue
		}
		manifest, damaged := lost[string(m.ID)]
		copied, err := s.heal(ctx, m, damaged, manifest)
		if ctx.Err() != nil {
			return found, healed, context.Cause(ctx)
		}
		if err != nil && errdefs.KindOf(err) != errdefs.Corrupt { // what is damaged twice stays, and is told
			return found, healed, err
		}
		if copied != "" {
			healed = append(healed, Healed{m.ID, copied})
		}
	}
	return found, healed, nil
}

// heal brings back the one copy of an image that is damaged, and says which. stored says that the one in the store is, manifest that it is its list of files.
func (s *Store) heal(ctx context.Context, m Manifest, stored, manifest bool) (string, error) {
	defer s.hold(m.ID)()
	dir := s.memoryDir(m.ID)
	_, err := os.Stat(dir)
	if errors.Is(err, unix.ENOENT) {
		return "", nil // there is the one in the store alone
	} else if err != nil {
		return "", err
	}
	s.forget(m.ID)
	bad := s.checkMemory(ctx, m, dir)
	switch {
	case stored && bad == nil:
		return CopyStored, s.storeAgain(ctx, m, manifest)
	case !stored && bad != nil && errdefs.KindOf(bad) == errdefs.Corrupt:
		return CopyFiles, s.provide(ctx, m)
	}
	return "", bad
}

// storeAgain brings the content of an image's files into the store once more. With it the image that is there is whole again, since it names its content
// by its hash. One whose list of files is lost is written anew.
func (s *Store) storeAgain(ctx context.Context, m Manifest, manifest bool) error {
	if manifest {
		if err := s.images.Delete(ctx, m.lineage(), string(m.ID)); err != nil {
			return err
		}
		return s.storeImage(ctx, m)
	}
	d, err := s.images.Begin(ctx, m.lineage())
	if err != nil {
		return err
	}
	defer d.Discard()
	for _, f := range m.Memory.Files {
		if err := s.storeFile(ctx, d, m, f); err != nil {
			return err
		}
	}
	again := "repair-" + string(m.ID)
	if err := s.images.Delete(ctx, m.lineage(), again); err != nil { // of a repair that was cut short
		return err
	}
	if _, _, err := d.Commit(ctx, again, nil); err != nil {
		return err
	}
	return s.images.Delete(ctx, m.lineage(), again)
}

// ImageUsage measures what the store of images has of a lineage.
func (s *Store) ImageUsage(ctx context.Context, first id.Session) (snapshot.Usage, error) {
	u, err := s.images.Usage(ctx, snapshot.Lineage(first))
	return u, withoutKey(err)
}

// FirstSession is the session that m's descends from.
func (m Manifest) FirstSession() id.Session { return id.Session(m.lineage()) }

// Sealed reports whether a checkpoint's image is in the store.
func (s *Store) Sealed(c id.Checkpoint) bool {
	sealed, err := s.readSealOf(c)
	return err == nil && sealed.Image
}

// CachedBytes is what memory images take as files.
func (s *Store) CachedBytes(ctx context.Context) (int64, error) {
	_, total, err := s.cached(ctx)
	return total, err
}
