// Package archive has the rules for tar archives that travel between a client and a workspace, for both of their readers.
//
// An archive is hostile, whichever way it goes: names that lead out of it are refused, the number of entries is bounded, and links are
// given last, so that nothing in the archive is written through one of them.
package archive

import (
	"archive/tar"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
)

// MaxEntries bounds one archive, in either direction.
const MaxEntries = 1_000_000

// TooLarge is the error (archive_too_large) for what has more than MaxEntries files.
func TooLarge(what string) error {
	return errdefs.New(errdefs.Exhausted, "archive_too_large", "%s has more than %d files", what, MaxEntries).
		WithHint("copy parts of it")
}

// Kind says what an entry is.
type Kind int

// The kinds.
const (
	File Kind = iota
	Directory
	Symlink
	Other // a hard link, a device, a pipe
)

// Entry is one entry of an archive.
type Entry struct {
	Name   string // clean, relative, with slashes; "." is the archive's own root
	Kind   Kind
	Mode   fs.FileMode // permission bits
	Target string      // of a symbolic link; may lead anywhere
	Body   io.Reader   // of a file; valid until the next entry
}

// Each calls do for each entry, in order, but for symbolic links, which come after all others. It ends at the first error. broken makes the
// error of an archive that cannot be read; the others are bad_archive and archive_too_large.
func Each(r io.Reader, broken func(error) error, do func(Entry) error) error {
	tr := tar.NewReader(r)
	var links []Entry
	for n := 0; ; n++ {
		h, err := tr.Next()
		switch {
		case err == io.EOF:
			for _, l := range links {
				if err := do(l); err != nil {
					return err
				}
			}
			return nil
		case err != nil:
			return broken(err)
		case n >= MaxEntries:
			return TooLarge("the archive")
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue
		}
		e := Entry{Kind: kind(h.Typeflag), Mode: h.FileInfo().Mode().Perm(), Target: h.Linkname, Body: tr}
		if e.Name, err = clean(h.Name); err != nil {
			return err
		}
		if e.Kind == Symlink {
			links = append(links, e)
			continue
		}
		if err := do(e); err != nil {
			return err
		}
	}
}

func kind(flag byte) Kind {
	switch flag {
	case tar.TypeReg:
		return File
	case tar.TypeDir:
		return Directory
	case tar.TypeSymlink:
		return Symlink
	}
	return Other
}

// clean refuses a name that is absolute or would lead out of the archive.
func clean(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return "", errdefs.New(errdefs.Invalid, "bad_archive", "the archive's name %q is absolute", name)
	case strings.ContainsRune(name, 0) || slices.Contains(strings.Split(name, "/"), ".."):
		return "", errdefs.New(errdefs.Invalid, "bad_archive", "the archive's name %q leads out of it", name)
	}
	return path.Clean(name), nil
}
