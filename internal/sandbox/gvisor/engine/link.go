package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/sandbox/shim"
)

// linkSpace is how much the directory of the guest's socket may hold. It is shown inside and can be written to there, it is not in the
// upper directory, whose size is watched, and it needs room for one name.
const linkSpace = "size=64k,nr_inodes=16,mode=0700"

// openLink makes the directory of the guest's socket, bounded where this process may mount.
func openLink(stateDir string) error {
	dir := filepath.Join(stateDir, shim.LinkDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, linkSpace); err != nil {
		return fmt.Errorf("bound the size of %s: %w", dir, err)
	}
	return nil
}

// closeLink takes the bound away, with what is in the directory.
func closeLink(stateDir string) error {
	err := unix.Unmount(filepath.Join(stateDir, shim.LinkDir), unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // it is none
	}
	return err
}
