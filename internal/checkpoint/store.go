package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/workspace"
)

// Store is the checkpoints of a data directory.
type Store struct {
	dirs   workspace.Dirs
	images *snapshot.Store
	boot   string // names the time since the machine started; "" if it cannot be told

	fetching singleflight.Group // of images, by checkpoint

	contents *contents // of memory images

	mu      sync.Mutex                    // guards what follows
	stored  map[storedFile]id.Checkpoint  // one whose stored image has the file
	held    map[id.Checkpoint]int         // how many use the memory directory
	changed map[snapshot.Lineage]struct{} // lineages in which something was deleted since they were collected
}

// NewStore returns the store over dirs, which keeps memory images in images.
func NewStore(dirs workspace.Dirs, images *snapshot.Store) *Store {
	return &Store{
		dirs: dirs, images: images, boot: bootID(),
		contents: newContents(), stored: map[storedFile]id.Checkpoint{}, held: map[id.Checkpoint]int{}, changed: map[snapshot.Lineage]struct{}{},
	}
}

// bootID changes with each start of the machine: what the page cache held then is lost. See random(4).
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // each checkpoint counts as one of an earlier boot
	}
	return strings.TrimSpace(string(b))
}

const (
	manifestName = "manifest.json"
	sealName     = "seal.json"
	syncedName   = "synced"
	memoryName   = "memory"
)

// Draft is a checkpoint in the making.
type Draft struct {
	store    *Store
	Manifest Manifest
}

// Begin makes room for a checkpoint. The caller fills in the manifest's cut and layers before Commit.
func (s *Store) Begin(m Manifest) (*Draft, error) {
	m.Format, m.Boot = Format, s.boot
	if m.Environment.Arch == "" {
		m.Environment.Arch = runtime.GOARCH
	}
	d := &Draft{store: s, Manifest: m}
	if err := os.MkdirAll(d.MemoryDir(), 0o700); err != nil {
		return nil, err
	}
	s.dirs.At("checkpoint.begun")
	return d, nil
}

// MemoryDir is where the driver puts its memory image.
func (d *Draft) MemoryDir() string {
	return filepath.Join(d.store.dirs.Checkpoint(d.Manifest.ID), memoryName)
}

// Commit hashes the memory image and writes the manifest: from here on the checkpoint can be opened. It returns the manifest's hash.
func (d *Draft) Commit(ctx context.Context, memory bool) (string, error) {
	if memory {
		files, total, err := d.store.contents.ofDir(ctx, d.MemoryDir())
		if err != nil {
			return "", err
		}
		d.Manifest.Memory = &Memory{Bytes: total, Files: files}
	} else {
		d.Manifest.Memory = nil
		if err := os.RemoveAll(d.MemoryDir()); err != nil {
			return "", err
		}
	}
	return d.write()
}

// write makes the checkpoint.
func (d *Draft) write() (string, error) {
	b, hash, err := d.Manifest.encode()
	if err != nil {
		return "", err
	}
	d.store.dirs.At("checkpoint.manifest")
	return hash, workspace.WriteFile(filepath.Join(d.store.dirs.Checkpoint(d.Manifest.ID), manifestName), b)
}

// Drop removes a draft.
func (d *Draft) Drop() error { return d.store.dirs.Trash(d.store.dirs.Checkpoint(d.Manifest.ID)) }

// Alias commits d with the memory image of another checkpoint, which is linked or, if it is only in the store of images, named.
func (d *Draft) Alias(ctx context.Context, of Manifest) (string, error) {
	if of.Memory == nil {
		return d.Commit(ctx, false)
	}
	memory := *of.Memory
	memory.Of = of.ID
	d.Manifest.Memory = &memory
	from := d.store.memoryDir(of.ID)
	d.store.contents.settle(from)
	for _, f := range of.Memory.Files {
		err := os.Link(filepath.Join(from, f.Name), filepath.Join(d.MemoryDir(), f.Name))
		if errors.Is(err, fs.ErrNotExist) { // not kept as files
			return d.commitStored(ctx, of)
		} else if err != nil {
			return "", err
		}
	}
	d.store.contents.settle(d.MemoryDir())
	return d.write()
}

// Read returns a checkpoint's manifest. Its hash is checked against want, unless that is empty.
func (s *Store) Read(c id.Checkpoint, want string) (Manifest, error) {
	b, err := os.ReadFile(filepath.Join(s.dirs.Checkpoint(c), manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, errdefs.New(errdefs.Corrupt, "checkpoint_missing", "checkpoint %s has no manifest", c).
			WithHint("it was lost or deleted outside Perdure; perdure recover S goes to the newest state that verifies")
	}
	if err != nil {
		return Manifest{}, err
	}
	return Decode(c, b, want)
}

// Decode reads a manifest as it is stored. Its hash is checked against want, unless that is empty.
func Decode(c id.Checkpoint, b []byte, want string) (Manifest, error) {
	var m Manifest
	if got := hashBytes(b); want != "" && got != want {
		return Manifest{}, corrupt(c, "its manifest has been changed")
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, corrupt(c, "its manifest cannot be read: %v", err)
	}
	if m.Format > Format {
		return Manifest{}, errdefs.New(errdefs.Unavailable, "checkpoint_newer", "checkpoint %s has format %d, this build reads up to %d", c, m.Format, Format).
			WithHint("use the version of Perdure that made it")
	}
	if m.ID != c {
		return Manifest{}, corrupt(c, "its manifest is that of %s", m.ID)
	}
	return m, nil
}

func corrupt(c id.Checkpoint, format string, args ...any) error {
	e := errdefs.New(errdefs.Corrupt, "checkpoint_corrupt", format, args...)
	e.Message = "checkpoint " + string(c) + " is corrupt: " + e.Message
	return e.WithHint("perdure recover S goes to the newest state that verifies; perdure verify S lists all that is wrong")
}

// Opened is a checkpoint that is in use: until Close, its memory image stays where Image says.
type Opened struct {
	Manifest Manifest
	Image    sandbox.Image // zero without one
	close    func()
}

// Close ends the use. It may be called more than once.
func (o *Opened) Close() { o.close() }

// Open checks a checkpoint's manifest and memory image and returns them. want is the manifest's hash as the log has it. An image that is not there as
// files, or is not what it should be, is taken from the store of images.
func (s *Store) Open(ctx context.Context, c id.Checkpoint, want string) (*Opened, error) {
	m, err := s.Read(c, want)
	if err != nil {
		return nil, err
	}
	for _, l := range m.Layers {
		if _, err := os.Stat(s.dirs.LayerFS(l)); err != nil {
			return nil, corrupt(c, "file layer %s is missing", l)
		}
	}
	if m.Memory == nil {
		return &Opened{Manifest: m, close: func() {}}, nil
	}
	release := s.hold(c)
	o := &Opened{Manifest: m, close: func() { s.contents.settle(s.memoryDir(c)); release() }, Image: sandbox.Image{
		Dir: s.memoryDir(c), Driver: m.Environment.Driver, Version: m.Environment.Version, Bytes: m.Memory.Bytes,
	}}
	if err := s.provide(ctx, m); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (s *Store) memoryDir(c id.Checkpoint) string {
	return filepath.Join(s.dirs.Checkpoint(c), memoryName)
}

// checkMemory compares the memory image with the manifest. Files that this process has read before and that nobody has touched
// since are not read again.
func (s *Store) checkMemory(ctx context.Context, m Manifest, dir string) error {
	files, _, err := s.contents.ofDir(ctx, dir)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return corrupt(m.ID, "its memory image cannot be read: %v", err)
	}
	for i, want := range m.Memory.Files {
		if i >= len(files) || files[i].Name != want.Name {
			return corrupt(m.ID, "%s of its memory image is missing", want.Name)
		}
		if files[i] != want {
			return corrupt(m.ID, "%s of its memory image has been changed", want.Name)
		}
	}
	if len(files) > len(m.Memory.Files) {
		return corrupt(m.ID, "its memory image has files that do not belong to it")
	}
	return nil
}

// Delete removes a checkpoint. Its layers stay until nothing refers to them, and the chunks of its image until Collect.
func (s *Store) Delete(ctx context.Context, c id.Checkpoint) error {
	// The image first: once the manifest is gone nobody knows where it is. Whose manifest is damaged keeps it until its lineage goes.
	if m, err := s.Read(c, ""); err == nil && m.Memory != nil {
		if err := s.removeImage(ctx, m); err != nil {
			return err
		}
	}
	return s.contents.across(s.memoryDir(c), func() error { return s.dirs.Trash(s.dirs.Checkpoint(c)) })
}

// List returns every checkpoint that is complete on disk, and the ones that are not.
func (s *Store) List() (complete, broken []id.Checkpoint, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dirs.Root, "checkpoints"))
	for _, e := range entries {
		c := id.Checkpoint(e.Name())
		if _, serr := os.Stat(filepath.Join(s.dirs.Checkpoint(c), manifestName)); serr == nil {
			complete = append(complete, c)
		} else {
			broken = append(broken, c)
		}
	}
	return complete, broken, err
}

// Cut fills in where the log stood.
func (d *Draft) Cut(h event.Head) { d.Manifest.CutSeq, d.Manifest.CutHash = h.Seq, h.Hash }
