package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// copyEntry makes dst what src is, but for a directory's contents and times. It returns the bytes of data written.
func copyEntry(src, dst string, s Stamp) (int64, error) {
	var n int64
	var err error
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err = unix.Mkdir(dst, 0o700); errors.Is(err, unix.EEXIST) {
			err = nil
		}
	case unix.S_IFREG:
		n, err = copyRegular(src, dst, s.Size)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(src); err == nil {
			err = unix.Symlink(target, dst)
		}
	default: // whiteouts, FIFOs, sockets, devices
		err = unix.Mknod(dst, s.Mode, int(s.Rdev))
	}
	if err != nil {
		return n, fmt.Errorf("copy %s: %w", src, err)
	}
	if s.IsWhiteout() {
		return n, nil
	}
	return n, copyMeta(src, dst, s)
}

// copyMeta copies owner, attributes, mode and times.
func copyMeta(src, dst string, s Stamp) error {
	if err := unix.Lchown(dst, int(s.UID), int(s.GID)); err != nil && !(errors.Is(err, unix.EPERM) && os.Geteuid() != 0) {
		return fmt.Errorf("chown %s: %w", dst, err)
	}
	if err := copyXattrs(src, dst); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFLNK { // after chown, which clears set-id bits
		if err := unix.Chmod(dst, s.Mode&0o7777); err != nil {
			return fmt.Errorf("chmod %s: %w", dst, err)
		}
	}
	return setTime(dst, s)
}

func setTime(dst string, s Stamp) error {
	ts := []unix.Timespec{unix.NsecToTimespec(s.Mtime), unix.NsecToTimespec(s.Mtime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set times of %s: %w", dst, err)
	}
	return nil
}

// copyXattrs copies extended attributes. Of overlayfs's own it keeps only the opaque mark: the others (origin, impure, …) tie an
// inode to the mount that it was made in.
func copyXattrs(src, dst string) error {
	var small [256]byte
	n, err := unix.Llistxattr(src, small[:])
	names := small[:]
	if errors.Is(err, unix.ERANGE) {
		names = make([]byte, 1<<16)
		n, err = unix.Llistxattr(src, names)
	}
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list attributes of %s: %w", src, err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if ofOverlay(name) && name != opaqueName() {
			continue
		}
		value := make([]byte, 1<<16)
		m, err := unix.Lgetxattr(src, name, value)
		if err == nil {
			err = unix.Lsetxattr(dst, name, value[:m], 0)
		}
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("copy attribute %s of %s: %w", name, src, err)
		}
	}
	return nil
}

// copyRegular copies a file's data: as a shared clone where the file system has it, else its data without its holes.
func copyRegular(src, dst string, size int64) (int64, error) {
	in, err := os.OpenFile(src, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := copyData(in, out, size)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return n, err
}

func copyData(in, out *os.File, size int64) (int64, error) {
	if size == 0 {
		return 0, nil
	}
	const smallFile = 64 << 10 // below this, asking for a clone or for holes costs more than it saves
	if size > smallFile && unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return 0, nil
	}
	if size <= smallFile {
		return io.Copy(out, in)
	}
	if err := out.Truncate(size); err != nil {
		return 0, err
	}
	var total, at int64
	for at < size {
		start, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		end := size
		if err == nil {
			end, err = unix.Seek(int(in.Fd()), start, unix.SEEK_HOLE)
		} else {
			start, err = at, nil // no support for holes: all of it is data
		}
		if err != nil {
			return total, err
		}
		if _, err := in.Seek(start, io.SeekStart); err != nil {
			return total, err
		}
		if _, err := out.Seek(start, io.SeekStart); err != nil {
			return total, err
		}
		n, err := io.CopyN(out, in, end-start) // copy_file_range inside
		total += n
		if err != nil && !errors.Is(err, io.EOF) {
			return total, err
		}
		at = end
	}
	return total, nil
}
