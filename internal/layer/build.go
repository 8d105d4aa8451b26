package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
)

// Builder makes a layer of entries, which it does not trust: whatever they say, nothing outside the layer is touched. A path's directory must have come
// before it and be a directory of the layer, each path comes once, and there are no devices.
type Builder struct {
	dir  string
	dirs map[string]Entry // made so far; settled at the end, since they may forbid their owner to write
	buf  []byte
}

// NewBuilder makes a layer in dir, which must be empty and nobody else's.
func NewBuilder(dir string) *Builder {
	return &Builder{dir: dir, dirs: map[string]Entry{}, buf: make([]byte, 1<<20)}
}

func badEntry(p, format string, args ...any) error {
	return errdefs.New(errdefs.Invalid, "bad_archive", "the archive's file %.200q %s", p, fmt.Sprintf(format, args...))
}

// Add makes one path. Errors: bad_archive for what no layer has.
func (b *Builder) Add(e Entry) error {
	if e.Path == "." {
		if len(b.dirs) > 0 || e.Mode&unix.S_IFMT != unix.S_IFDIR {
			return badEntry(e.Path, "is the layer itself, and does not come first")
		}
		b.dirs["."] = e
		return nil
	}
	if err := b.checkPath(e.Path); err != nil {
		return err
	}
	full := filepath.Join(b.dir, e.Path)
	var err error
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err = unix.Mkdir(full, 0o700); err == nil {
			b.dirs[e.Path] = e
			return nil
		}
	case unix.S_IFREG:
		if e.Link != "" {
			return b.link(e, full)
		}
		if err = b.file(e, full); err == nil {
			return b.finish(e, full)
		}
	case unix.S_IFLNK:
		if e.Target == "" || len(e.Target) >= unix.PathMax || strings.ContainsRune(e.Target, 0) {
			return badEntry(e.Path, "is a link to nothing")
		}
		if err = unix.Symlink(e.Target, full); err == nil {
			return b.finish(e, full)
		}
	case whiteoutMode:
		if err = unix.Mknod(full, whiteoutMode, 0); err == nil {
			e.Xattrs = nil
			return b.finish(e, full)
		}
	case unix.S_IFIFO, unix.S_IFSOCK:
		if err = unix.Mknod(full, e.Mode&unix.S_IFMT|0o600, 0); err == nil {
			return b.finish(e, full)
		}
	default:
		return badEntry(e.Path, "is of a kind that no layer has")
	}
	if errors.Is(err, unix.EEXIST) {
		return badEntry(e.Path, "comes twice")
	}
	return fmt.Errorf("make %s: %w", full, err)
}

func (b *Builder) checkPath(p string) error {
	switch {
	case p == "" || len(p) >= unix.PathMax || p != path.Clean(p) || p[0] == '/' || strings.ContainsRune(p, 0):
		return badEntry(p, "has a path that no layer has")
	case slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool { return name == ".." || len(name) > unix.NAME_MAX }):
		return badEntry(p, "has a path that no layer has")
	}
	if in := path.Dir(p); in != "." {
		if _, ok := b.dirs[in]; !ok {
			return badEntry(p, "comes before its directory")
		}
	} else if _, ok := b.dirs["."]; !ok {
		return badEntry(p, "comes before the layer itself")
	}
	return nil
}

// link gives an earlier file another name.
func (b *Builder) link(e Entry, full string) error {
	if err := b.checkPath(e.Link); err != nil {
		return err
	}
	from := filepath.Join(b.dir, e.Link)
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return badEntry(e.Path, "is another name of %.200q, which is no file before it", e.Link)
	}
	err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, full, 0)
	if errors.Is(err, unix.EEXIST) {
		return badEntry(e.Path, "comes twice")
	}
	return err
}

// file writes a regular file. Blocks of zeros become holes.
func (b *Builder) file(e Entry, full string) (err error) {
	fd, err := openFile(full, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), full)
	defer func() { err = errors.Join(err, f.Close()) }()
	if e.Size < 0 {
		return badEntry(e.Path, "has a negative size")
	}
	n, err := WriteSparse(f, e.Body, b.buf)
	if err == nil && n != e.Size {
		err = badEntry(e.Path, "has %d bytes and says %d", n, e.Size)
	}
	return err
}

// WriteSparse copies r into an empty file, and leaves out aligned blocks of zeros. buf is for its use, a multiple of 4 KiB.
func WriteSparse(f *os.File, r io.Reader, buf []byte) (int64, error) {
	var at int64
	for {
		n, err := io.ReadFull(r, buf)
		for from := 0; from < n; {
			to := from
			for to < n && !zero(buf[to:min(to+holeBlock, n)]) {
				to = min(to+holeBlock, n)
			}
			if to > from {
				if _, werr := f.WriteAt(buf[from:to], at+int64(from)); werr != nil {
					return at, werr
				}
			}
			from = min(to+holeBlock, n)
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n < len(buf) && drained(r) {
			return at, f.Truncate(at)
		}
		if err != nil {
			return at, err
		}
	}
}

// drained tells an end from a cut, both of which io.ReadFull calls ErrUnexpectedEOF.
func drained(r io.Reader) bool {
	var one [1]byte
	n, err := r.Read(one[:])
	return n == 0 && err == io.EOF
}

// finish gives what is no directory its owner, attributes, mode and time.
func (b *Builder) finish(e Entry, full string) error {
	uid, gid := int(e.UID), int(e.GID)
	if err := unix.Lchown(full, uid, gid); err != nil && !mayNotChown(err) {
		return fmt.Errorf("chown %s: %w", full, err)
	}
	for name, value := range e.Xattrs {
		if !portableXattr(name) {
			continue
		}
		err := unix.Lsetxattr(full, name, []byte(value), 0)
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !mayNotChown(err) {
			return fmt.Errorf("attribute %.100q of %s: %w", name, full, err)
		}
	}
	if e.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(full, e.Mode&0o7777); err != nil {
			return fmt.Errorf("chmod %s: %w", full, err)
		}
	}
	ts := []unix.Timespec{unix.NsecToTimespec(e.Mtime), unix.NsecToTimespec(e.Mtime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, full, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set times of %s: %w", full, err)
	}
	return nil
}

// portableXattr says which attributes an archive may set: those that programs inside can set themselves. Overlayfs's own would hide files from us.
func portableXattr(name string) bool {
	switch {
	case ofOverlay(name), strings.ContainsRune(name, 0), len(name) > 255:
		return false
	case strings.HasPrefix(name, "user."), name == "security.capability", strings.HasPrefix(name, "system.posix_acl_"):
		return true
	}
	return false
}

// Close settles the directories. Without it the layer is not complete.
func (b *Builder) Close() error {
	if _, ok := b.dirs["."]; !ok {
		return badEntry(".", "is missing")
	}
	paths := make([]string, 0, len(b.dirs))
	for p := range b.dirs {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, func(x, y string) int { return len(y) - len(x) }) // what is in a directory before it
	for _, p := range paths {
		if p == "." {
			continue
		}
		if err := b.settleDir(b.dirs[p], filepath.Join(b.dir, p)); err != nil {
			return err
		}
	}
	return b.settleDir(b.dirs["."], b.dir)
}

func (b *Builder) settleDir(e Entry, full string) error {
	if err := settleOpaque(full, e.Opaque); err != nil {
		return err
	}
	return b.finish(e, full)
}

func unixTime(ns int64) time.Time { return time.Unix(0, ns) }
