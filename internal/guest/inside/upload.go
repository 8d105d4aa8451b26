package inside

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"perdure.dev/perdure/internal/guest/wire"
)

// upload is a file being written beside its place.
type upload struct {
	owner *person    // of a file that was not there; nil: the guest
	mu    sync.Mutex // guards all below; its pieces come one after the other, but may be repeated
	file  *os.File
	next  int64
}

// abort drops an upload.
func (u *upload) abort() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.file != nil {
		u.file.Close()
		os.Remove(u.file.Name())
		u.file = nil
	}
}

// fileWrite takes one piece. The last one makes the file appear in its place, whole and synced.
func (g *Guest) fileWrite(a wire.WriteArgs, data []byte) error {
	if err := g.resolve(&a.Path); err != nil {
		return err
	}
	owner := g.owner()
	g.mu.Lock()
	u := g.uploads[a.Upload]
	if u == nil && !a.Abort {
		u = &upload{owner: owner}
		g.uploads[a.Upload] = u
	}
	g.mu.Unlock()
	if u == nil {
		return nil
	}
	if a.Abort {
		g.forgetUpload(a.Upload, u)
		return nil
	}
	err := u.write(a, data)
	if err != nil || a.Commit {
		g.forgetUpload(a.Upload, u)
	}
	return err
}

func (g *Guest) forgetUpload(name string, u *upload) {
	u.abort()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.uploads, name)
}

func (u *upload) write(a wire.WriteArgs, data []byte) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	path := resolve(a.Path)
	if u.file == nil {
		if a.Offset != 0 {
			return fail("conflict", "upload_lost", "the beginning of %s was lost with its sandbox", a.Path)
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return fail("invalid", "is_a_directory", "%s is a directory", a.Path)
		}
		if err := u.owner.mkdirs(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.CreateTemp(filepath.Dir(path), fmt.Sprintf(".%.100s.perdure-*", filepath.Base(path)))
		if err != nil {
			return err
		}
		u.file = f
	}
	if a.Offset > u.next {
		return fail("conflict", "upload_gap", "a piece of %s is missing", a.Path)
	}
	if _, err := u.file.WriteAt(data, a.Offset); err != nil {
		return err
	}
	u.next = max(u.next, a.Offset+int64(len(data)))
	if !a.Commit {
		return nil
	}
	return u.commit(path, a.Mode)
}

// resolve follows a symbolic link at the end, so that the file it names is replaced and not the link.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func (u *upload) commit(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && (mode == 0 || u.owner != nil):
		keepOwner(u.file, info)
	case u.owner != nil:
		if err := u.owner.own(u.file.Name()); err != nil {
			return err
		}
	}
	if mode == 0 {
		mode = 0o644
		if err == nil {
			mode = info.Mode()
		}
	}
	if err := u.file.Chmod(mode); err != nil {
		return err
	}
	if err := u.file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(u.file.Name(), path); err != nil {
		return err
	}
	err = u.file.Close()
	u.file = nil
	return err
}
