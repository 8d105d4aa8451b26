package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Record is what a shim writes down about itself.
type Record struct {
	ID        id.Sandbox
	Driver    string
	Version   string
	Shim      Process
	Running   Running
	SpoolDir  string
	State     sandbox.State
	Cause     string
	StartedAt time.Time
}

func readRecord(dir string) (Record, error) {
	var r Record
	return r, readJSON(filepath.Join(dir, recordFile), &r)
}

func writeRecord(dir string, r Record) error { return writeJSON(filepath.Join(dir, recordFile), r) }

func readConfig(dir string) (Config, error) {
	var c Config
	return c, readJSON(filepath.Join(dir, configFile), &c)
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return errdefs.Wrap(err, errdefs.Corrupt, "state_corrupt", "read %s", path)
	}
	return nil
}

// writeJSON replaces path as a whole: a reader sees the old or the new content. State directories mean nothing after a crash of the
// machine, so nothing is synced.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// openLock opens the lock file of a state directory. The lock belongs to the open file, not to the process: it passes on with the
// file to a child and falls when the last copy is closed.
func openLock(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
}

// Alive reports whether a shim, or a spare, lives in the directory.
func Alive(dir string) (bool, error) { return shimAlive(dir) }

// shimAlive reports whether a shim holds the lock of the directory.
func shimAlive(dir string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return false, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	default:
		return false, fmt.Errorf("ask for the lock: %w", err)
	}
}

// awaitShimExit returns when nobody holds the lock any more.
func awaitShimExit(lock *os.File) error {
	for {
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
