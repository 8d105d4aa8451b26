package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The reserve is a file whose space is for deleting: on a full disk not even that a session is deleted could be written down, and nothing
// could be freed any more.
const (
	reserveName = "reserve"
	reserveSize = 4 << 20 // bytes; a deletion writes some pages of the database
	reserveRoom = 8       // how many times its size must be free to make it
)

// KeepReserve makes the reserve, if it is not there and there is room for it.
func (d Dirs) KeepReserve() error {
	name := filepath.Join(d.Root, reserveName)
	if _, err := os.Lstat(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.Root, &st); err != nil || int64(st.Bavail)*int64(st.Bsize) < reserveRoom*reserveSize {
		return err
	}
	f, err := os.CreateTemp(d.Root, reserveName+".")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize); errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.Write(make([]byte, reserveSize))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return err
}

// SpendReserve frees the space of the reserve and reports whether there was any.
func (d Dirs) SpendReserve() bool { return os.Remove(filepath.Join(d.Root, reserveName)) == nil }
