package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// copyEntry makes dst what src is. Of a directory it makes neither contents, mode nor times: that is for settle, once the contents are
// there, for a directory may forbid its owner to write. It returns the bytes of data written.
func copyEntry(src, dst string, s Stamp) (int64, error) {
	var err error
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err = unix.Mkdir(dst, 0o700); errors.Is(err, unix.EEXIST) {
			err = nil
		}
	case unix.S_IFREG:
		n, err := copyRegular(src, dst, s)
		if err != nil {
			return n, fmt.Errorf("copy %s: %w", src, err)
		}
		return n, setTime(dst, s)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(src); err == nil {
			err = unix.Symlink(target, dst)
		}
	default: // whiteouts, FIFOs, sockets, devices
		err = unix.Mknod(dst, s.Mode, int(s.Rdev))
	}
	if err != nil {
		return 0, fmt.Errorf("copy %s: %w", src, err)
	}
	if s.IsWhiteout() {
		return 0, nil
	}
	if err := copyOwner(src, dst, s); err != nil || s.IsDir() {
		return 0, err
	}
	return 0, settle(dst, s)
}

// copyOwner copies owner and attributes.
func copyOwner(src, dst string, s Stamp) error {
	if err := unix.Lchown(dst, int(s.UID), int(s.GID)); err != nil && !mayNotChown(err) {
		return fmt.Errorf("chown %s: %w", dst, err)
	}
	err := copyXattrs(
		func(names []byte) (int, error) { return unix.Llistxattr(src, names) },
		func(name string, value []byte) (int, error) { return unix.Lgetxattr(src, name, value) },
		func(name string, value []byte) error { return unix.Lsetxattr(dst, name, value, 0) },
	)
	if err != nil {
		return fmt.Errorf("copy attributes of %s: %w", src, err)
	}
	return nil
}

// settle gives dst, which has its owner, its mode and times.
func settle(dst string, s Stamp) error {
	if s.Mode&unix.S_IFMT != unix.S_IFLNK { // after chown, which clears set-id bits
		if err := unix.Chmod(dst, s.Mode&0o7777); err != nil {
			return fmt.Errorf("chmod %s: %w", dst, err)
		}
	}
	return setTime(dst, s)
}

// mayNotChown reports whether an owner cannot be kept because only root may give files away.
func mayNotChown(err error) bool { return errors.Is(err, unix.EPERM) && os.Geteuid() != 0 }

func setTime(dst string, s Stamp) error {
	ts := []unix.Timespec{unix.NsecToTimespec(s.Mtime), unix.NsecToTimespec(s.Mtime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set times of %s: %w", dst, err)
	}
	return nil
}

// copyXattrs copies extended attributes. Of overlayfs's own it keeps only the opaque mark: the others (origin, impure, …) tie an
// inode to the mount that it was made in.
func copyXattrs(list func([]byte) (int, error), get func(string, []byte) (int, error), set func(string, []byte) error) error {
	var small [256]byte
	names := small[:]
	n, err := list(names)
	if errors.Is(err, unix.ERANGE) {
		names = make([]byte, 1<<16)
		n, err = list(names)
	}
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if ofOverlay(name) && name != opaqueName() {
			continue
		}
		value := make([]byte, 1<<16)
		m, err := get(name, value)
		if err == nil {
			err = set(name, value[:m])
		}
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}

// smallFile is the size, in bytes, up to which a file is read and written at once: asking for a clone or for holes would cost more than
// it saves.
const smallFile = 64 << 10

var smallBuffers = sync.Pool{New: func() any { return new([smallFile]byte) }}

// copyRegular copies a file with its owner, attributes and mode. A workspace has thousands of small files, all of which are copied while it
// stands still, so this does with few system calls: they are on descriptors, and none sets what is so already.
func copyRegular(src, dst string, s Stamp) (n int64, err error) {
	in, err := openFile(src, unix.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	out, err := openFile(dst, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, s.Mode&0o777)
	if err != nil {
		unix.Close(in)
		return 0, err
	}
	if s.Size <= smallFile {
		n, err = copySmall(in, out)
		if err == nil {
			err = copyFileMeta(in, out, s)
		}
		unix.Close(in)
		return n, errors.Join(err, unix.Close(out))
	}
	from, to := os.NewFile(uintptr(in), src), os.NewFile(uintptr(out), dst)
	defer from.Close()
	n, err = copyData(from, to, s.Size)
	if err == nil {
		err = copyFileMeta(in, out, s)
	}
	return n, errors.Join(err, to.Close())
}

// openFile opens a file itself, not what a link in its place names. Unlike os.OpenFile it registers it nowhere, which costs several calls.
func openFile(name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if err != unix.EINTR { // by a signal of the Go runtime, on file systems that can wait
			return fd, err
		}
	}
}

// copyFileMeta gives the file out the attributes of the file in, and the owner and mode of s.
func copyFileMeta(in, out int, s Stamp) error {
	var st unix.Stat_t
	if err := unix.Fstat(out, &st); err != nil {
		return err
	}
	if st.Uid != s.UID || st.Gid != s.GID {
		if err := unix.Fchown(out, int(s.UID), int(s.GID)); err != nil && !mayNotChown(err) {
			return err
		}
	}
	err := copyXattrs(
		func(names []byte) (int, error) { return unix.Flistxattr(in, names) },
		func(name string, value []byte) (int, error) { return unix.Fgetxattr(in, name, value) },
		func(name string, value []byte) error { return unix.Fsetxattr(out, name, value, 0) },
	)
	if err != nil {
		return err
	}
	if st.Mode&0o7777 == s.Mode&0o7777 { // which has no set-id bits, that a chown would have cleared
		return nil
	}
	return unix.Fchmod(out, s.Mode&0o7777)
}

// copySmall copies what a file of up to smallFile bytes holds.
func copySmall(in, out int) (int64, error) {
	buf := smallBuffers.Get().(*[smallFile]byte)
	defer smallBuffers.Put(buf)
	var total int64
	for {
		n, err := unix.Read(in, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return total, err
		}
		for data := buf[:n]; len(data) > 0; {
			m, err := unix.Write(out, data)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return total, err
			}
			data = data[max(m, 0):]
			total += int64(max(m, 0))
		}
		if n < smallFile {
			return total, nil // of a regular file: its end
		}
	}
}

// copyData copies a larger file's data: as a shared clone where the file system has it, else its data without its holes.
func copyData(in, out *os.File, size int64) (int64, error) {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return 0, nil
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
