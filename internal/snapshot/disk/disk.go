// Package disk keeps snapshots in directories.
//
// An object is a file. Put writes a temporary file beside it, brings it to stable storage and renames it, so that there is never half an object; a
// temporary file that a crash left is deleted by Open. All files are 0600 and all directories 0700.
package disk

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/snapshot"
)

const temporary = ".new-"

// Bucket is a directory of objects.
type Bucket struct {
	root string // clean
	// dirs is held for reading from making a directory until a file is in it, and for writing while empty ones are removed.
	dirs sync.RWMutex
}

var _ snapshot.Bucket = (*Bucket)(nil)

// Open makes the directory if there is none, and removes what a crash left.
func Open(root string) (*Bucket, error) {
	root = filepath.Clean(root)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasPrefix(e.Name(), temporary) {
			return os.Remove(path)
		}
		return err
	})
	return &Bucket{root: root}, err
}

func (b *Bucket) path(name string) (string, error) {
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, temporary) {
		return "", errdefs.New(errdefs.Invalid, snapshot.CodeBadName, "%q is no name of an object", name)
	}
	return filepath.Join(b.root, filepath.FromSlash(name)), nil
}

// Put implements snapshot.Bucket.
func (b *Bucket) Put(ctx context.Context, name string, data []byte) error {
	path, err := b.path(name)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	f, err := b.create(filepath.Dir(path))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return cmp.Or(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// create makes a temporary file in a directory, which it makes too.
func (b *Bucket) create(dir string) (*os.File, error) {
	b.dirs.RLock()
	defer b.dirs.RUnlock()
	if err := makeDirs(b.root, dir); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, temporary+"*")
}

// makeDirs makes dir and what is missing above it, and brings the new entries to stable storage.
func makeDirs(root, dir string) error {
	var missing []string
	for d := dir; len(d) > len(root); d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil {
			break
		}
		missing = append(missing, d)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, d := range missing {
		if err := syncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return cmp.Or(f.Sync(), f.Close())
}

// Get implements snapshot.Bucket.
func (b *Bucket) Get(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	path, err := b.path(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errdefs.New(errdefs.NotFound, snapshot.CodeObjectMissing, "there is no object %s", name)
	} else if err != nil {
		return nil, err
	}
	if length < 0 {
		info, err := f.Stat()
		if err != nil {
			return nil, cmp.Or(err, f.Close())
		}
		length = max(0, info.Size()-offset)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, offset, length), f}, nil
}

// List implements snapshot.Bucket.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[snapshot.Object, error] {
	return func(yield func(snapshot.Object, error) bool) {
		top := b.root
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			var err error
			if top, err = b.path(prefix[:i]); err != nil {
				yield(snapshot.Object{}, err)
				return
			}
		}
		var objects []snapshot.Object
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // deleted meanwhile, or nothing there at all
			} else if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			name, err := filepath.Rel(b.root, path)
			if err != nil {
				return err
			}
			name = filepath.ToSlash(name)
			if e.IsDir() || !strings.HasPrefix(name, prefix) || strings.HasPrefix(e.Name(), temporary) {
				return nil
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			} else if err != nil {
				return err
			}
			objects = append(objects, snapshot.Object{Name: name, Size: info.Size(), Changed: info.ModTime()})
			return nil
		})
		if err != nil {
			yield(snapshot.Object{}, err)
			return
		}
		slices.SortFunc(objects, func(a, b snapshot.Object) int { return strings.Compare(a.Name, b.Name) })
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// Delete implements snapshot.Bucket. A directory that becomes empty goes too, so that nothing of a deleted lineage is left.
func (b *Bucket) Delete(_ context.Context, name string) error {
	path, err := b.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b.dirs.Lock()
	defer b.dirs.Unlock()
	for ; len(dir) > len(b.root) && os.Remove(dir) == nil; dir = filepath.Dir(dir) { // fails where something is left, as it should
	}
	return nil
}
