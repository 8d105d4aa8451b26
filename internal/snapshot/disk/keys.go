package disk

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/snapshot"
)

// Keys is a directory of keys: a file for each lineage, with 64 hex digits.
type Keys struct {
	root   string
	public bool
}

var _ snapshot.Keys = (*Keys)(nil)

// OpenKeys makes the directory if there is none.
func OpenKeys(root string) (*Keys, error) { return &Keys{root: root}, os.MkdirAll(root, 0o700) }

// OpenPublicKeys is OpenKeys, but new lineages get the key that everybody has. Those that have one keep it.
func OpenPublicKeys(root string) (*Keys, error) {
	k, err := OpenKeys(root)
	k.public = true
	return k, err
}

func (k *Keys) path(l snapshot.Lineage) (string, error) {
	if s := string(l); s == "" || strings.HasPrefix(s, ".") || strings.ContainsRune(s, '/') {
		return "", errdefs.New(errdefs.Invalid, snapshot.CodeBadName, "%q is no name of a lineage", l)
	}
	return filepath.Join(k.root, string(l)), nil
}

// Key implements snapshot.Keys.
func (k *Keys) Key(_ context.Context, l snapshot.Lineage, create bool) (snapshot.Key, error) {
	path, err := k.path(l)
	if err != nil {
		return snapshot.Key{}, err
	}
	key, err := read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if !create {
		return snapshot.Key{}, errdefs.New(errdefs.NotFound, snapshot.CodeKeyMissing, "there is no key for the snapshots of %s", l).
			WithHint("without its key a snapshot cannot be read by anybody; it is deleted with the last session that could use it")
	}
	if k.public {
		key = snapshot.PublicKey()
	} else {
		_, _ = rand.Read(key[:]) // it never fails: see crypto/rand
	}
	if err := k.create(path, key); err != nil {
		return snapshot.Key{}, err
	}
	return read(path) // another may have been faster: there is one key
}

// create writes a key, unless there is one.
func (k *Keys) create(path string, key snapshot.Key) error {
	f, err := os.CreateTemp(k.root, temporary+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(key[:]) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(k.root)
}

func read(path string) (key snapshot.Key, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return key, err
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(raw) != len(key) {
		return key, errdefs.New(errdefs.Corrupt, snapshot.CodeCorrupt, "%s holds no key", path).
			WithHint("restore the file from a backup: what was stored with the key cannot be read without it")
	}
	return snapshot.Key(raw), nil
}

// Destroy implements snapshot.Keys. The file is overwritten before it is deleted; a file system or a disk that writes elsewhere, or a backup, may still
// have the old bytes.
func (k *Keys) Destroy(_ context.Context, l snapshot.Lineage) error {
	path, err := k.path(l)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Repeat("0", 2*len(snapshot.Key{})))
	if err == nil {
		err = f.Sync()
	}
	gone := os.Remove(path)
	if errors.Is(gone, fs.ErrNotExist) {
		gone = nil // somebody else destroys it too
	}
	if err = cmp.Or(err, f.Close(), gone); err != nil {
		return err
	}
	return syncDir(k.root)
}

// Lineages implements snapshot.Keys.
func (k *Keys) Lineages(context.Context) iter.Seq2[snapshot.Lineage, error] {
	return func(yield func(snapshot.Lineage, error) bool) {
		entries, err := os.ReadDir(k.root)
		if err != nil {
			yield("", err)
			return
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") && !yield(snapshot.Lineage(e.Name()), nil) {
				return
			}
		}
	}
}
