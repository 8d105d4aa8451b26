package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The image "host" shows the machine's /usr, and whoever opens files for the sandbox is root. What only root may read on the machine, a
// key in /usr/local or a data directory below /usr, must stay hidden all the same. So the mount maps no owner: to it, all files belong to
// nobody, and root's right to pass over modes, which holds for owners that are mapped (capable_wrt_inode_uidgid in the kernel), is
// void. What is left is what the mode grants to others. This holds for files that come later, too.

// unowned is the only id that the mount maps. Any that owns nothing will do.
const unowned = 65534

// noOwners returns a user namespace to mount with. The kernel makes one only for a process, which need not live on.
func noOwners() (*os.File, error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	id := []syscall.SysProcIDMap{{ContainerID: unowned, HostID: unowned, Size: 1}}
	cmd := exec.Command("/proc/self/exe") // stopped before its first instruction
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: id, GidMappings: id, Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if kerr := cmd.Process.Kill(); kerr != nil {
		return nil, errors.Join(err, kerr)
	}
	_ = cmd.Wait() // it was killed
	return f, err
}

// disown makes a detached mount map no owners. It fails where the file system cannot be mounted so, as an overlay cannot.
func disown(tree int) error {
	users, err := noOwners()
	if err != nil {
		return err
	}
	defer users.Close()
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())})
}

// maskHidden covers what others than root may not read below source, as it is now, with something empty. It is what is left where
// disown fails; it takes a second for a large /usr. Files below a directory that is covered are not looked at.
func (r *rootfs) maskHidden(source, name, scratch string) error {
	if ownUser() {
		return nil
	}
	emptyFile, emptyDir := filepath.Join(scratch, "empty"), filepath.Join(scratch, "empty.d")
	if err := errors.Join(os.WriteFile(emptyFile, nil, 0o600), os.MkdirAll(emptyDir, 0o700)); err != nil {
		return err
	}
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil // what we cannot read nobody reads through us
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || path == source {
			return nil
		}
		cover, then := emptyFile, error(nil)
		switch mode := info.Mode(); {
		case mode.IsDir() && mode.Perm()&0o005 != 0o005:
			cover, then = emptyDir, fs.SkipDir
		case mode.IsRegular() && mode.Perm()&0o004 == 0:
		default:
			return nil
		}
		at := filepath.Join(name, path[len(source):])
		if err := unix.Mount(cover, filepath.Join(r.path, at), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
		r.mounts = append(r.mounts, at)
		return then
	})
}

// ownUser reports whether root here is one plain user of the machine, who reads nothing but what is his.
func ownUser() bool {
	f := userMap()
	return len(f) == 3 && f[0] == "0" && f[1] != "0" && f[2] == "1"
}

// inUserNamespace reports whether root here is another than the machine's, or than that of a container's runtime that maps ids.
func inUserNamespace() bool { return !slices.Equal(userMap(), []string{"0", "0", "4294967295"}) }

// userMap returns the numbers of this process's user map, see user_namespaces(7). None can be read where there are no user namespaces.
func userMap() []string {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return []string{"0", "0", "4294967295"}
	}
	return strings.Fields(string(ids))
}
