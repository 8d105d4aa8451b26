package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// rootfs is the mounted root file system: an overlay, and for the image "host" the machine's /usr inside it.
type rootfs struct {
	path   string
	mounts []string // below path, in the order made; "": path itself
	shared bool     // processes with copies of the mount namespace see what is mounted
}

// overlayOptions make the upper directory readable without overlayfs: plain copies, no redirects. In a user namespace overlayfs keeps
// its marks in attributes that a user may write, does none of these, and refuses to be told so.
func overlayOptions() []string {
	if inUserNamespace() {
		return []string{"userxattr"}
	}
	return []string{"redirect_dir=off", "metacopy=off", "index=off"}
}

// rootDir is where the root is mounted, below the state directory.
const rootDir = "root"

// open makes the place of the root ahead. Mounts made there later show in the copies of this mount namespace that processes get
// meanwhile.
func (r *rootfs) open() error {
	if err := os.MkdirAll(r.path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(r.path, r.path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("make a mount of %s: %w", r.path, err)
	}
	r.mounts = append(r.mounts, "")
	if err := unix.Mount("", r.path, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts in %s: %w", r.path, err)
	}
	r.shared = true
	return nil
}

// mount mounts the root file system of cfg, in this process's mount namespace. If it fails nothing is mounted.
func (r *rootfs) mount(cfg shim.Config) error {
	if err := os.MkdirAll(r.path, 0o755); err != nil {
		return err
	}
	if err := r.mountAll(cfg); err != nil {
		return errors.Join(err, r.unmount())
	}
	return nil
}

func (r *rootfs) mountAll(cfg shim.Config) error {
	root := cfg.Spec.Root
	lower := append([]string(nil), root.Layers...)
	image, isDir := strings.CutPrefix(root.Image, "dir:")
	stored := strings.HasPrefix(root.Image, sandbox.StoredImage)
	switch {
	case isDir:
		lower = append(lower, image)
	case stored:
		lower = append(lower, root.Lower...)
	}
	// The base is below other images too: it gives the mount points that the image may lack.
	lower = append(lower, cfg.Base)
	if err := overlay(r.path, lower, root.Upper, root.Work); err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "root_unmountable", "mount the root file system of %s", cfg.Spec.ID)
	}
	r.mounts = append(r.mounts, "")
	if !isDir && !stored {
		if err := r.bindReadOnly("/usr", "usr"); err != nil {
			return err
		}
	}
	if stored {
		if err := places(r.path); err != nil {
			return err
		}
		if err := resolvers(r.path, cfg); err != nil {
			return err
		}
	}
	return identify(r.path, cfg)
}

// overlay mounts upper over lower (top first) at target.
func overlay(target string, lower []string, upper, work string) error {
	if err := overlayByParts(target, lower, upper, work); err == nil || !errors.Is(err, errOldKernel) {
		return err
	}
	// Kernels before 6.7 take all layers in one string of at most a page.
	return overlayAtOnce(target, lower, upper, work)
}

// overlayAtOnce names the layers by descriptors: so short are no paths, and none has a ':' or ','.
func overlayAtOnce(target string, lower []string, upper, work string) error {
	names := make([]string, len(lower))
	for i, dir := range lower {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		defer unix.Close(fd)
		names[i] = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	options := append([]string{"lowerdir=" + strings.Join(names, ":"), "upperdir=" + upper, "workdir=" + work}, overlayOptions()...)
	return unix.Mount("overlay", target, "overlay", 0, strings.Join(options, ","))
}

var errOldKernel = errors.New("the kernel does not take layers one by one")

// overlayByParts uses the mount API that has no limit on the length of all layers together, and no trouble with ':' and ','.
func overlayByParts(target string, lower []string, upper, work string) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) {
		return errOldKernel
	}
	if err != nil {
		return fmt.Errorf("open overlayfs: %w", err)
	}
	defer unix.Close(fs)
	set := func(key, value string) error {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return fmt.Errorf("overlay option %s=%s: %w", key, value, err)
		}
		return nil
	}
	for i, dir := range lower {
		if err := set("lowerdir+", dir); err != nil {
			if i == 0 && errors.Is(err, unix.EINVAL) {
				return errOldKernel
			}
			return err
		}
	}
	if err := errors.Join(set("upperdir", upper), set("workdir", work)); err != nil {
		return err
	}
	for _, option := range overlayOptions() {
		key, value, valued := strings.Cut(option, "=")
		if !valued {
			if err := unix.FsconfigSetFlag(fs, key); err != nil {
				return fmt.Errorf("overlay option %s: %w", key, err)
			}
			continue
		}
		if err := set(key, value); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("make the overlay: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount the overlay: %w", err)
	}
	defer unix.Close(mount)
	return unix.MoveMount(mount, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// bindReadOnly shows a directory of the host inside the root.
func (r *rootfs) bindReadOnly(source, name string) error {
	target := filepath.Join(r.path, name)
	if info, err := os.Lstat(target); err != nil || !info.IsDir() {
		return errdefs.New(errdefs.Invalid, "root_invalid", "/%s in the workspace is not a directory any more", name)
	}
	hidden, err := attachReadOnly(source, target)
	if errors.Is(err, unix.ENOSYS) && !r.shared { // before Linux 5.12
		err = mountReadOnly(source, target)
	}
	if err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "root_unmountable", "show the host's %s, read-only", source)
	}
	r.mounts = append(r.mounts, name)
	if !hidden {
		if err := r.maskHidden(source, name, filepath.Dir(r.path)); err != nil {
			return errdefs.Wrap(err, errdefs.Unavailable, "root_unmountable", "hide what is root's alone in the host's %s", source)
		}
	}
	return nil
}

// attachReadOnly makes a bind mount that is read-only before anybody sees it. In a shared mount nothing else will do: the copies get
// what is mounted, and no change that is made to it later. hidden says that the mount itself hides what is root's alone.
func attachReadOnly(source, target string) (hidden bool, err error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false, err
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return false, err
	}
	hidden = disown(tree) == nil
	return hidden, unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func mountReadOnly(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	if err != nil {
		err = errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
	}
	return err
}

// unmount undoes open and mount.
func (r *rootfs) unmount() error {
	var errs []error
	for i := len(r.mounts) - 1; i >= 0; i-- {
		path := filepath.Join(r.path, r.mounts[i])
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	r.mounts = nil
	return errors.Join(append(errs, os.Remove(r.path))...)
}

// places makes what every root has where an image has deleted it, also from below itself. Without a /tmp gVisor would put a file system in
// memory there.
func places(root string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	for name, mode := range map[string]os.FileMode{"tmp": 0o777 | os.ModeSticky, "etc": 0o755} {
		if _, err := dir.Lstat(name); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := errors.Join(dir.Mkdir(name, mode.Perm()), dir.Chmod(name, mode)); err != nil {
			return errdefs.Wrap(err, errdefs.Exhausted, "root_unwritable", "make /%s", name)
		}
	}
	return nil
}

// resolvers has the programs of a stored image ask the gateway for names. What the image or the workspace has there is not meant for this
// network; a link that leads nowhere is replaced, as it stands in images that were made of a running system.
func resolvers(root string, cfg shim.Config) error {
	if cfg.Image != nil {
		return nil
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	base, err := os.ReadFile(filepath.Join(cfg.Base, "etc/resolv.conf"))
	if err != nil {
		return err
	}
	const name = "etc/resolv.conf"
	have, err := dir.ReadFile(name)
	if err == nil && string(have) == string(base) {
		return nil
	}
	if info, serr := dir.Lstat(name); err != nil && serr == nil && info.Mode()&os.ModeSymlink != 0 {
		if err := dir.Remove(name); err != nil {
			return errdefs.Wrap(err, errdefs.Exhausted, "root_unwritable", "replace /%s", name)
		}
	}
	return errdefs.Wrap(dir.WriteFile(name, base, 0o644), errdefs.Exhausted, "root_unwritable", "write /%s", name)
}

// identify gives the files their host name and machine id, so that a fork is told from its parent. A boot from memory does this
// through the guest.
func identify(root string, cfg shim.Config) error {
	if cfg.Image != nil {
		return nil
	}
	hosts := "127.0.0.1\tlocalhost " + cfg.Spec.Hostname + "\n::1\tlocalhost ip6-localhost\n"
	// os.Root: a link in the workspace must not lead out of it.
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	for name, want := range map[string]string{
		"etc/hostname":   cfg.Spec.Hostname + "\n",
		"etc/machine-id": cfg.MachineID + "\n",
		"etc/hosts":      hosts,
	} {
		if have, err := dir.ReadFile(name); err == nil && string(have) == want {
			continue
		}
		if info, err := dir.Lstat(name); err == nil && !info.Mode().IsRegular() {
			continue // the image's own business
		}
		if err := dir.WriteFile(name, []byte(want), 0o644); err != nil {
			return errdefs.Wrap(err, errdefs.Exhausted, "root_unwritable", "write /%s", name)
		}
	}
	return nil
}
