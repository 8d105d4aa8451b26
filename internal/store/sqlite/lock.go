package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/store"
)

// lockDir takes the data directory for this process. The kernel drops the lock with the process, however that ends; the pid
// in the file is only for the message to others.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the data directory cannot be locked")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the data directory cannot be locked")
		}
		pid, _ := io.ReadAll(io.LimitReader(f, 32)) // for the message only
		return nil, errdefs.New(errdefs.Conflict, store.CodeDataLocked, "the data directory is in use by the process with pid %s", strings.TrimSpace(string(pid))).
			WithHint("use that daemon, stop it, or choose another directory with --data")
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) { // a full disk must not keep anybody from reading
		f.Close()
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the data directory cannot be locked")
	}
	return f, nil
}
