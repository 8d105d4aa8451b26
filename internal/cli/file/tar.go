package file

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"perdure.dev/perdure/internal/archive"
	"perdure.dev/perdure/internal/errdefs"
)

// Pack writes the tree at root as an archive whose names start with name. Sockets, pipes and devices are left out.
func Pack(w io.Writer, root, name string) error {
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
		return Local(err)
	}
	return tw.Close()
}

// unpack writes an archive's tree to target. The archive comes from a workspace and is hostile: nothing is written outside of target, whatever
// names and links say, since every file is opened through an os.Root.
func unpack(r io.Reader, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return Local(err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return Local(err)
	}
	defer root.Close()
	broken := func(err error) error {
		return errdefs.Wrap(err, errdefs.Unavailable, "connection_lost", "reading the archive")
	}
	return archive.Each(r, broken, func(e archive.Entry) error {
		name := filepath.FromSlash(inTree(e.Name))
		switch e.Kind {
		case archive.Directory:
			err = root.MkdirAll(name, 0o755)
		case archive.File:
			err = writeInto(root, name, e.Mode, e.Body)
		case archive.Symlink:
			if err = root.Remove(name); err == nil || os.IsNotExist(err) {
				err = root.Symlink(e.Target, name)
			}
		}
		if err != nil {
			return Local(err)
		}
		return nil
	})
}

// inTree takes the first element, the tree's own name, off an archive's name.
func inTree(name string) string {
	_, rest, ok := strings.Cut(name, "/")
	if !ok {
		return "."
	}
	return rest
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
