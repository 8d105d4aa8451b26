package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/workspace"
)

// Options configure a Store. Dirs and Clock must be set.
type Options struct {
	Dirs      workspace.Dirs
	Clock     clock.Clock
	Log       *slog.Logger       // nil: none
	Keychain  authn.Keychain     // nil: that of Docker's configuration, and of the helpers that it names
	Transport http.RoundTripper  // nil: the library's
	Limits    layer.UnpackLimits // of each layer
}

// Store is an image.Store. Make one with Open.
type Store struct {
	opts Options
	dir  string

	mu      sync.Mutex // guards all below
	images  map[string]record
	names   map[string]string // full name: digest
	pinned  map[string]int    // layers that an image in the making needs, by key
	work    map[string]chan struct{}
	pulls   map[string]*pull
	damaged bool // an image cannot be read: what it needs is not known, and nothing is swept
}

var _ image.Store = (*Store)(nil)

// record is images/HEX.json.
type record struct {
	Digest       string          `json:"digest"`
	ConfigDigest string          `json:"config_digest"`
	Others       []string        `json:"others,omitempty"`
	Source       string          `json:"source"`
	OS           string          `json:"os"`
	Arch         string          `json:"arch"`
	Layers       []layerRecord   `json:"layers"`
	Parents      string          `json:"parents,omitempty"`  // the key of what goes on top of the layers
	Config       json.RawMessage `json:"config"`             // as it came
	Nameless     bool            `json:"nameless,omitempty"` // it came without a name, so that it need not have one
	CreatedAt    time.Time       `json:"created_at,omitzero"`
	StoredAt     time.Time       `json:"stored_at"`
}

// layerRecord is layer.json, and the part of a record about one layer.
type layerRecord struct {
	DiffID string `json:"diff_id"`
	layer.Unpacked
}

// Open opens the store below the data directory, and removes what a crash has left half done.
func Open(opts Options) (*Store, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Keychain == nil {
		opts.Keychain = authn.DefaultKeychain
	}
	s := &Store{
		opts: opts, dir: opts.Dirs.Images(), images: map[string]record{}, names: map[string]string{}, pinned: map[string]int{},
		work: map[string]chan struct{}{}, pulls: map[string]*pull{},
	}
	for _, name := range []string{"layers", "images", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	left, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return nil, err
	}
	for _, e := range left {
		if err := opts.Dirs.Trash(s.path("tmp", e.Name())); err != nil {
			return nil, err
		}
	}
	return s, s.load()
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// load reads the images and their names. One that cannot be read is missed when it is asked for, and keeps no other from its use.
func (s *Store) load() error {
	entries, err := os.ReadDir(s.path("images"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		var r record
		if err := readJSON(s.path("images", e.Name()), &r); err != nil || recordName(r.Digest) != e.Name() {
			s.opts.Log.Error("an image cannot be read; nothing is swept", "file", e.Name(), "error", err)
			s.damaged = true
			continue
		}
		s.images[r.Digest] = r
	}
	if err := readJSON(s.path("names.json"), &s.names); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.opts.Log.Error("the names of images cannot be read; they are still there by their digests", "error", err)
		s.names = map[string]string{}
	}
	return nil
}

func readJSON(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

func recordName(digest string) string { return hexOf(digest) + ".json" }

// present shows a record. s.mu is held.
func (s *Store) present(r record) image.Image {
	out := image.Image{
		Digest: r.Digest, ConfigDigest: r.ConfigDigest, Others: r.Others, Source: r.Source, OS: r.OS, Arch: r.Arch,
		CreatedAt: r.CreatedAt, StoredAt: r.StoredAt, Config: configOf(r.Config),
	}
	for _, l := range r.Layers {
		out.Layers = append(out.Layers, image.Layer{DiffID: l.DiffID, Bytes: l.Bytes, Entries: l.Entries, Skipped: l.Skipped})
	}
	for full, digest := range s.names {
		if digest == r.Digest {
			out.Names = append(out.Names, image.Familiar(full))
		}
	}
	slices.Sort(out.Names)
	return out
}

// List implements image.Store.
func (s *Store) List(context.Context) ([]image.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]image.Image, 0, len(s.images))
	for _, r := range s.images {
		out = append(out, s.present(r))
	}
	slices.SortFunc(out, func(a, b image.Image) int {
		if (len(a.Names) == 0) != (len(b.Names) == 0) {
			return cmp.Compare(len(b.Names), len(a.Names))
		}
		return cmp.Or(slices.Compare(a.Names, b.Names), cmp.Compare(a.Digest, b.Digest))
	})
	return out, nil
}

// Find implements image.Store.
func (s *Store) Find(_ context.Context, ref string) (image.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _, err := s.find(ref)
	if err != nil {
		return image.Image{}, err
	}
	return s.present(r), nil
}

// find returns an image, and the name by which it was asked for, if that decides. s.mu is held.
func (s *Store) find(ref string) (record, string, error) {
	parsed, err := image.Parse(ref)
	if err != nil {
		return record{}, "", err
	}
	if parsed.Digest == "" {
		if r, ok := s.images[s.names[parsed.Name]]; ok {
			return r, parsed.Name, nil
		}
		return record{}, "", notFound(image.Familiar(parsed.Name))
	}
	if r, ok := s.images[parsed.Digest]; ok {
		return r, "", nil
	}
	var found []record
	for _, r := range s.images {
		for _, d := range append([]string{r.Digest, r.ConfigDigest}, r.Others...) {
			if strings.HasPrefix(d, parsed.Digest) {
				found = append(found, r)
				break
			}
		}
	}
	switch len(found) {
	case 1:
		return found[0], "", nil
	case 0:
		return record{}, "", notFound(strings.TrimPrefix(ref, "oci:"))
	}
	return record{}, "", errdefs.New(errdefs.Conflict, "image_ambiguous", "%d images match %s", len(found), ref).
		WithHint("perdure image ls --json shows the digests in full")
}

func notFound(ref string) error {
	e := errdefs.New(errdefs.NotFound, "image_not_found", "there is no image %q here", ref)
	if strings.HasPrefix(ref, "sha256:") {
		return e.WithHint("perdure image ls shows what is here; perdure image import FILE brings one from a file")
	}
	if strings.Contains(ref, "@") {
		return e.WithHint("perdure image pull %s, or perdure image import FILE if it came from a file", ref)
	}
	return e.WithHint("perdure image pull %s", ref)
}

// Root implements image.Store.
func (s *Store) Root(_ context.Context, pin string) (image.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _, err := s.find(pin)
	if err != nil {
		return image.Root{}, err
	}
	root := image.Root{Config: configOf(r.Config)}
	for _, key := range slices.Backward(r.keys()) {
		dir := s.path("layers", key, "fs")
		if _, err := os.Stat(dir); err != nil {
			return image.Root{}, errdefs.Wrap(err, errdefs.Corrupt, "image_corrupt", "a layer of the image %s is missing", r.Digest)
		}
		root.Layers = append(root.Layers, dir)
	}
	return root, nil
}

// keys returns the keys of what is mounted, bottom first. A layer that an image has twice is mounted once: the upper one hides it.
func (r record) keys() []string {
	var keys []string
	for i, l := range r.Layers {
		if !slices.ContainsFunc(r.Layers[i+1:], func(up layerRecord) bool { return up.DiffID == l.DiffID }) {
			keys = append(keys, hexOf(l.DiffID))
		}
	}
	if r.Parents != "" {
		keys = append(keys, r.Parents)
	}
	return keys
}

// add stores an image whose layers are there, under names if it has some. It takes them from images that had them.
func (s *Store) add(r record, names []string) (image.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Nameless = len(names) == 0
	if old, ok := s.images[r.Digest]; ok {
		r.StoredAt, r.Nameless = old.StoredAt, r.Nameless || old.Nameless
		for _, o := range old.Others {
			if !slices.Contains(r.Others, o) {
				r.Others = append(r.Others, o)
			}
		}
	}
	if err := workspace.WriteJSON(s.path("images", recordName(r.Digest)), r); err != nil {
		return image.Image{}, diskError(err, "store the image %s", r.Digest)
	}
	s.images[r.Digest] = r
	s.opts.Dirs.At("image.stored")
	next := maps.Clone(s.names)
	for _, full := range names {
		next[full] = r.Digest
	}
	err := s.rename(next)
	return s.present(r), err
}

// rename replaces all names. s.mu is held.
func (s *Store) rename(next map[string]string) error {
	if maps.Equal(next, s.names) {
		return nil
	}
	if err := workspace.WriteJSON(s.path("names.json"), next); err != nil {
		return diskError(err, "store the names of images")
	}
	s.names = next
	return nil
}

// Remove implements image.Store.
func (s *Store) Remove(ctx context.Context, ref string, inUse func(image.Image) error) (rest func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var remove removals
	r, full, err := s.find(ref)
	if err != nil {
		return remove.run, err
	}
	next := maps.Clone(s.names)
	maps.DeleteFunc(next, func(name, digest string) bool { return name == full || full == "" && digest == r.Digest })
	before := s.present(r)
	last := full == "" || len(before.Names) <= 1
	if last {
		if err := inUse(before); err != nil {
			return remove.run, err
		}
	}
	if err := s.rename(next); err != nil || !last {
		return remove.run, err
	}
	s.opts.Dirs.At("image.unnamed")
	remove, err = s.drop(ctx, r)
	return remove.run, err
}

// removals delete what is out of sight already. A crash leaves them to the next start.
type removals []func() error

func (list removals) run() error {
	var errs []error
	for _, f := range list {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// drop takes an image away that has no name any more, and returns what deletes its layers. s.mu is held.
func (s *Store) drop(ctx context.Context, r record) (remove removals, err error) {
	if err := os.Remove(s.path("images", recordName(r.Digest))); err != nil {
		return nil, err
	}
	delete(s.images, r.Digest)
	return s.unlinkUnused(ctx, r.keys(), 0)
}

// orphanAge is how long whole layers without an image stay, for the pull that made them to be repeated.
const orphanAge = 24 * time.Hour

// Sweep implements image.Store.
func (s *Store) Sweep(ctx context.Context, inUse func(image.Image) error) (rest func() error, err error) {
	var remove removals
	entries, err := os.ReadDir(s.path("layers"))
	if err != nil {
		return remove.run, err
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Name()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	remove, err = s.unlinkUnused(ctx, keys, orphanAge)
	for _, r := range s.images {
		img := s.present(r)
		if err != nil || r.Nameless || len(img.Names) > 0 || inUse(img) != nil {
			continue
		}
		var more removals
		more, err = s.drop(ctx, r)
		remove = append(remove, more...)
	}
	return remove.run, err
}

// unlinkUnused takes away the names of those layers that no image has and none in the making needs, if they are old enough, and returns what
// deletes them. s.mu is held.
func (s *Store) unlinkUnused(ctx context.Context, keys []string, age time.Duration) (remove removals, err error) {
	if s.damaged {
		return nil, nil
	}
	used := map[string]bool{}
	for _, r := range s.images {
		for _, key := range r.keys() {
			used[key] = true
		}
	}
	for _, key := range keys {
		if ctx.Err() != nil {
			return remove, context.Cause(ctx)
		}
		if used[key] || s.pinned[key] > 0 {
			continue
		}
		info, err := os.Stat(s.path("layers", key))
		if err != nil || s.opts.Clock.Now().Sub(info.ModTime()) < age {
			continue
		}
		f, err := s.opts.Dirs.Unlink(s.path("layers", key))
		if err != nil {
			return remove, err
		}
		remove = append(remove, f)
	}
	return remove, nil
}

// diskError names the one cause of failing writes that people can do something about.
func diskError(err error, format string, args ...any) error {
	var typed *errdefs.Error
	switch {
	case err == nil, errors.As(err, &typed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e := errdefs.New(errdefs.Exhausted, event.CodeDiskFull, format, args...)
		e.Err = err
		return e.WithHint("free some space on the data directory's disk and try again; perdure image ls shows what images take")
	}
	return errdefs.Wrap(err, errdefs.Internal, "io_error", "%s", fmt.Sprintf(format, args...))
}
