package layer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A program in a sandbox may change its upper directory while it is read, and swap any name in it for a symbolic link to a place of the
// host. So nothing in a live directory is reached by a path that the kernel may follow out of it: each thing is opened below the top, and
// looked at through what was opened.

// openBeneath opens path, which is relative, below dir. No symbolic link is followed, neither in its middle nor at its end.
func openBeneath(dir, path string, flags int) (*os.File, error) {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(top, path, &unix.OpenHow{
		Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		fd, err = openStepwise(top, path, flags)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(dir, path), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, path)), nil
}

// openStepwise goes down one name at a time.
func openStepwise(top int, path string, flags int) (int, error) {
	at := top
	for {
		name, rest, deeper := strings.Cut(path, "/")
		how := flags
		if deeper {
			how = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		}
		next, err := unix.Openat(at, name, how, 0)
		if at != top {
			unix.Close(at)
		}
		if err != nil || !deeper {
			return next, err
		}
		at, path = next, rest
	}
}

// gone reports whether an error means that something is not there any more, or is another thing now.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}

// walkBeneath calls fn for each path below dir in lexical order, parents first. handle is the opened directory where path is one, else
// nil. What vanishes meanwhile is passed over; dir itself must be there.
func walkBeneath(ctx context.Context, dir string, fn visit) error {
	top, err := openBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return walkOpened(ctx, dir, "", top, fn)
}

type visit func(path string, st *unix.Stat_t, handle *os.File) error

// walkOpened walks what is in at, which it closes before it goes deeper: a tree may be deeper than this process may open files.
func walkOpened(ctx context.Context, dir, prefix string, at *os.File, fn visit) error {
	names, err := at.Readdirnames(-1)
	if err != nil && !gone(err) {
		at.Close()
		return err
	}
	slices.Sort(names)
	stats := make([]unix.Stat_t, len(names))
	for i, name := range names {
		if err := unix.Fstatat(int(at.Fd()), name, &stats[i], unix.AT_SYMLINK_NOFOLLOW); gone(err) {
			names[i] = ""
		} else if err != nil {
			at.Close()
			return &os.PathError{Op: "lstat", Path: filepath.Join(dir, prefix, name), Err: err}
		}
	}
	at.Close()
	for i, name := range names {
		if name == "" {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		path := prefix + name
		if stats[i].Mode&unix.S_IFMT != unix.S_IFDIR {
			if err := fn(path, &stats[i], nil); err != nil {
				return err
			}
			continue
		}
		sub, err := openBeneath(dir, path, unix.O_RDONLY|unix.O_DIRECTORY)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.Fstat(int(sub.Fd()), &stats[i]) // it may be another one by now
		if err == nil {
			err = fn(path, &stats[i], sub)
		}
		if err != nil {
			sub.Close()
			return err
		}
		if err := walkOpened(ctx, dir, path+"/", sub, fn); err != nil {
			return err
		}
	}
	return nil
}

// walk calls fn for each path below dir in lexical order, parents first. A program may be at work there: what vanishes meanwhile is passed over.
func walk(ctx context.Context, dir string, fn func(path string, s Stamp) error) error {
	return walkBeneath(ctx, dir, func(path string, st *unix.Stat_t, handle *os.File) error {
		opaque := false
		if handle != nil {
			var buf [8]byte
			n, err := unix.Fgetxattr(int(handle.Fd()), opaqueName(), buf[:])
			opaque = err == nil && n > 0 && buf[0] == 'y'
		}
		return fn(path, stampFrom(st, opaque))
	})
}

// Source is where a layer has a file. The zero value is nowhere.
type Source struct{ dir, path string }

// GobEncode and GobDecode are for helpers, see asroot.go.
func (s Source) GobEncode() ([]byte, error) { return []byte(s.dir + "\x00" + s.path), nil }

// GobDecode undoes GobEncode.
func (s *Source) GobDecode(b []byte) error {
	dir, path, whole := strings.Cut(string(b), "\x00")
	if !whole {
		return errors.New("not a source")
	}
	s.dir, s.path = dir, path
	return nil
}

// String returns the path by which the host can reach it, where nobody is at work in the layer.
func (s Source) String() string { return filepath.Join(s.dir, s.path) }

// Open opens a regular file. A program may be at work in the layer: what is opened need not be what was compared, but it is a file of
// the layer. Error: fs.ErrNotExist, also for anything that is no regular file.
func (s Source) Open() (*os.File, error) {
	f, err := openBeneath(s.dir, s.path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		if gone(err) {
			err = fs.ErrNotExist
		}
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	return f, nil
}

// target returns what a symbolic link says.
func (s Source) target() (string, error) {
	f, err := openBeneath(s.dir, s.path, unix.O_PATH)
	if err != nil {
		if gone(err) {
			err = fs.ErrNotExist
		}
		return "", err
	}
	defer f.Close()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", errors.Join(err, fs.ErrNotExist) // no link any more
	}
	return string(buf[:n]), nil
}

// names returns what a layer has in a directory, nothing if it is none.
func (s Source) names() []string {
	d, err := openBeneath(s.dir, s.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	return names
}

// Look describes what a layer has at a path, which is relative. No symbolic link is followed. Error: fs.ErrNotExist, or that of the system.
func Look(dir, path string) (Stamp, error) {
	f, err := openBeneath(dir, path, unix.O_PATH)
	if err != nil {
		return Stamp{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Stamp{}, &os.PathError{Op: "stat", Path: filepath.Join(dir, path), Err: err}
	}
	return stampFrom(&st, st.Mode&unix.S_IFMT == unix.S_IFDIR && isOpaque(at(int(f.Fd()), "."))), nil
}
