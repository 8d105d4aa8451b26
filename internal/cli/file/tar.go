package file

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
)

// maxEntries bounds an archive that comes from a workspace.
const maxEntries = 1_000_000

// pack writes the tree at root as an archive whose names start with name. Sockets, pipes and devices are left out.
func pack(w io.Writer, root, name string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = os.Readlink(p); err != nil {
				return err
			}
		case !info.IsDir() && !info.Mode().IsRegular():
			return nil
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		h.Name = path.Join(name, filepath.ToSlash(rel))
		if info.IsDir() {
			h.Name += "/"
		}
		if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyN(tw, f, info.Size())
		return err
	})
	if err != nil {
		return local(err)
	}
	return tw.Close()
}

// unpack writes an archive's tree to target. The archive comes from a workspace and is hostile: nothing is written outside of target, whatever
// names and links say, since every file is opened through an os.Root. Links are made last.
func unpack(r io.Reader, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return local(err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return local(err)
	}
	defer root.Close()
	tr := tar.NewReader(r)
	var links []*tar.Header
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return errdefs.Wrap(err, errdefs.Unavailable, "connection_lost", "reading the archive")
		}
		if n >= maxEntries {
			return errdefs.New(errdefs.Exhausted, "archive_too_large", "the archive has more than %d files", maxEntries)
		}
		name, ok := inside(h.Name)
		if !ok {
			return errdefs.New(errdefs.Invalid, "bad_archive", "the archive's name %q leads out of it", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = writeInto(root, name, h.FileInfo().Mode().Perm(), tr)
		case tar.TypeSymlink:
			c := *h
			c.Name = name
			links = append(links, &c)
		}
		if err != nil {
			return local(err)
		}
	}
	for _, l := range links {
		if err := root.Remove(l.Name); err != nil && !os.IsNotExist(err) {
			return local(err)
		}
		if err := root.Symlink(l.Linkname, l.Name); err != nil {
			return local(err)
		}
	}
	return nil
}

// inside takes the first element, the tree's own name, off an archive's name, and refuses what leads out of the tree.
func inside(name string) (string, bool) {
	if strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", false
		}
	}
	_, rest, _ := strings.Cut(path.Clean(name), "/")
	if rest == "" {
		rest = "."
	}
	return filepath.FromSlash(rest), true
}

func writeInto(root *os.Root, name string, mode fs.FileMode, r io.Reader) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// A link in the way is replaced, not followed.
	if err := root.Remove(name); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
