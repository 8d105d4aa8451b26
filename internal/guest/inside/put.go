package inside

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/guest/wire"
)

// filePut makes files in order, up to the first that cannot be made.
func (g *Guest) filePut(a wire.PutArgs, data []byte) error {
	for _, f := range a.Files {
		if f.Size < 0 || f.Size > int64(len(data)) {
			return fail("invalid", "guest_request", "the contents of %s are cut short", f.Path)
		}
		if err := g.put(f, data[:f.Size]); err != nil {
			return err
		}
		data = data[f.Size:]
	}
	return nil
}

func (g *Guest) put(f wire.NewFile, data []byte) error {
	switch f.Mode.Type() {
	case fs.ModeDir:
		_, err := g.fileMkdir(wire.MkdirArgs{Path: f.Path, Mode: f.Mode})
		return err
	case fs.ModeSymlink:
		return g.putLink(f)
	case 0:
		return g.putFile(f, data)
	}
	return fail("invalid", "file_special", "%s is neither a file, a directory nor a symbolic link", f.Path)
}

// putFile writes a file straight to its place if there is nothing, and else as file.write does: a reader sees the old or the new one.
func (g *Guest) putFile(f wire.NewFile, data []byte) error {
	if err := g.resolve(&f.Path); err != nil {
		return err
	}
	mode := f.Mode.Perm()
	if mode == 0 {
		mode = 0o644
	}
	owner := g.owner()
	file, err := create(f.Path, mode, owner)
	if errors.Is(err, fs.ErrExist) {
		return g.fileWrite(wire.WriteArgs{Upload: rand.Text(), Path: f.Path, Mode: f.Mode.Perm(), Commit: true}, data)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if info, serr := file.Stat(); err == nil && (serr != nil || info.Mode().Perm() != mode) { // for the guest's umask
		err = file.Chmod(mode)
	}
	if err == nil && owner != nil {
		err = errors.Join(file.Chown(int(owner.uid), int(owner.gid)), file.Chmod(mode))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		os.Remove(f.Path)
	}
	return err
}

// create makes a file that is not there, and its parents.
func create(path string, mode fs.FileMode, owner *person) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	file, err := os.OpenFile(path, flags, mode)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if err := owner.mkdirs(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags, mode)
}

// putLink makes a symbolic link, in the place of a file or link that is there, but not of a directory.
func (g *Guest) putLink(f wire.NewFile) error {
	if err := g.resolve(&f.Path); err != nil {
		return err
	}
	owner := g.owner()
	err := os.Symlink(f.Target, f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := owner.mkdirs(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		err = os.Symlink(f.Target, f.Path)
	}
	if err == nil {
		return owner.own(f.Path)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, serr := os.Lstat(f.Path); serr == nil && info.IsDir() {
		return fail("invalid", "is_a_directory", "%s is a directory", f.Path)
	}
	beside := filepath.Join(filepath.Dir(f.Path), ".perdure-"+rand.Text())
	if err := os.Symlink(f.Target, beside); err != nil {
		return err
	}
	if err := errors.Join(owner.own(beside), os.Rename(beside, f.Path)); err != nil {
		os.Remove(beside)
		return err
	}
	return nil
}
