package workspace

import (
	"os"

	"golang.org/x/sys/unix"
)

// topDir is FS_TOPDIR_FL of the kernel's linux/fs.h (chattr +T).
const topDir = 0x00020000

// spread asks the file system to put each directory that is made in dir, with what will be in it, away from its siblings.
//
// ext4 keeps the inodes of a directory together, and does not use one again for minutes after it was deleted (recently_deleted in
// fs/ext4/ialloc.c): each new file looks at every such inode of its group first. Beside a thousand files that were just deleted, as
// those of an old checkpoint or before a rollback, a file costs a millisecond to make; elsewhere 40 µs. File systems that know nothing
// of this are as they are.
func spread(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&topDir != 0 {
		return
	}
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topDir))
}
