package inside

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// listPage is how many entries one reply of file.list holds.
const listPage = 2000

// resolve replaces a path that starts at the home directory (~ or ~/…), or where commands start (. or ./…), by an absolute one, in place, and
// refuses any other that is not absolute.
func (g *Guest) resolve(path *string) error {
	if rest, ok := strings.CutPrefix(*path, "~"); ok && (rest == "" || rest[0] == '/') {
		home := g.cfg.Home
		if p := g.owner(); p != nil {
			home = p.home
		}
		*path = filepath.Join(home, rest)
	}
	if *path == "." || strings.HasPrefix(*path, "./") {
		p, err := g.person("")
		if err != nil {
			return err
		}
		*path = filepath.Join(g.start(p), *path)
	}
	if !filepath.IsAbs(*path) || strings.ContainsRune(*path, 0) {
		return fail("invalid", "path_invalid", "%q is neither absolute nor below ~ or .", *path)
	}
	return nil
}

// fileRead returns one piece. O_NONBLOCK keeps a FIFO from holding the request for ever.
func (g *Guest) fileRead(a wire.ReadArgs) (any, []byte, error) {
	if err := g.resolve(&a.Path); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(a.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, fail("invalid", "is_a_directory", "%s is a directory", a.Path)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fail("invalid", "file_special", "%s is no regular file", a.Path)
	}
	inode := inodeOf(info)
	if a.Inode != 0 && a.Inode != inode {
		return nil, nil, fail("conflict", "file_changed", "%s was replaced while it was read", a.Path)
	}
	if a.Offset < 0 || a.Length < 0 {
		return nil, nil, fail("invalid", "offset_invalid", "a negative range")
	}
	buf := make([]byte, min(a.Length, wire.MaxBlob))
	n, err := f.ReadAt(buf, a.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return wire.ReadResult{Size: max(info.Size(), a.Offset+int64(n)), Inode: inode}, buf[:n], nil
}

func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

func fileInfo(dir string, info fs.FileInfo) wire.FileInfo {
	f := wire.FileInfo{Name: info.Name(), Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime().UTC()}
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err := os.Readlink(filepath.Join(dir, info.Name())); err == nil {
			f.Target = target
		}
	}
	return f
}

func (g *Guest) fileList(a wire.ListArgs) (any, error) {
	if err := g.resolve(&a.Path); err != nil {
		return nil, err
	}
	dir, err := os.Open(a.Path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if i, found := slices.BinarySearch(names, a.After); a.After != "" {
		if found {
			i++
		}
		names = names[i:]
	}
	var res wire.ListResult
	for i, name := range names {
		if len(res.Entries) == listPage {
			res.More = i < len(names)
			break
		}
		info, err := os.Lstat(filepath.Join(a.Path, name))
		if err != nil {
			continue // gone since
		}
		res.Entries = append(res.Entries, fileInfo(a.Path, info))
	}
	return res, nil
}

func (g *Guest) fileStat(a wire.PathArgs) (any, error) {
	if err := g.resolve(&a.Path); err != nil {
		return nil, err
	}
	info, err := os.Lstat(a.Path)
	if err != nil {
		return nil, err
	}
	return fileInfo(filepath.Dir(a.Path), info), nil
}

func (g *Guest) fileRemove(a wire.RemoveArgs) (any, error) {
	if err := g.resolve(&a.Path); err != nil {
		return nil, err
	}
	if filepath.Clean(a.Path) == "/" {
		return nil, fail("denied", "file_denied", "the root directory cannot be removed")
	}
	if a.Recursive {
		return nil, os.RemoveAll(a.Path)
	}
	if err := os.Remove(a.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, nil
}

func (g *Guest) fileMkdir(a wire.MkdirArgs) (any, error) {
	if err := g.resolve(&a.Path); err != nil {
		return nil, err
	}
	mode := a.Mode.Perm()
	if mode == 0 {
		mode = 0o755
	}
	return nil, g.owner().mkdirs(a.Path, mode)
}

// keepOwner gives a new file the owner of the one that it replaces, where that is permitted.
func keepOwner(f *os.File, old fs.FileInfo) {
	if st, ok := old.Sys().(*syscall.Stat_t); ok {
		f.Chown(int(st.Uid), int(st.Gid)) // not permitted to others than root, and then ours is right
	}
}
