// Package layer deals with the file layers of a workspace: directories in the form in which kernel overlayfs leaves and reads
// an upper directory.
//
// The root of a workspace is an overlay: an image, then one layer per checkpoint, then the live upper directory. This
// package finds what changed in an upper since the last look (Delta), puts layers together (Merge, Flatten), and compares two
// stacks of layers (Diff). It never mounts anything.
//
// # Form of a layer
//
// As described in the kernel's Documentation/filesystems/overlayfs.rst: a deleted path is a character device 0:0 (a
// whiteout), a directory that hides what is below it carries the extended attribute "opaque" = "y" in the trusted.overlay or, without
// privileges, the user.overlay name space. Redirects and metadata-only copies are switched off at the mount, so they do not occur.
//
// # Guarantees
//
//   - A layer that Delta, Merge or Flatten returned without error is complete; after Sync it survives a host crash.
//   - Contents, modes, owners, modification times (to the nanosecond), extended attributes, holes and hard links inside one
//     layer are preserved. Open handles of a restored program depend on the times being exact.
//   - Paths are never followed through symbolic links: what an upper holds is written by the program inside.
package layer

import (
	"os"

	"golang.org/x/sys/unix"
)

// Sync brings everything on dir's file system to stable storage.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return nil
}
