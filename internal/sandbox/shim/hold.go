package shim

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/spool"
)

// holdSpool notes, for as long as the file is open, that a shim writes to the spool. During a rollback two shims do.
func holdSpool(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH); {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, err
		}
	}
}

// alone reports whether no other shim writes to the spool.
func (g *guest) alone() bool {
	fd := int(g.hold.Fd())
	err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	_ = unix.Flock(fd, unix.LOCK_SH) // back to sharing; nobody holds the other kind for long
	return err == nil
}

// markLost makes every running command of a dead sandbox lost, unless another shim has taken the spool over.
func markLost(dir, cause string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	// The files of a process that is ending are closed one by one: the dead shim's hold may outlast its lock for a moment.
	const tries, pause = 50, 5 * time.Millisecond
	for range tries {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
		time.Sleep(pause)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := spool.Look(dir, spool.Options{})
	if err != nil {
		return err
	}
	_, err = s.MarkLost(cause)
	return errors.Join(err, s.Close())
}
