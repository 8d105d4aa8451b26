package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// rootfs is the mounted root file system: an overlay, and for the image "host" the machine's /usr inside it.
type rootfs struct {
	path   string
	mounts []string // in the order made
}

// overlayOptions make the upper directory readable without overlayfs: plain copies, no redirects.
var overlayOptions = []string{"redirect_dir=off", "metacopy=off", "index=off"}

// mountRoot mounts the root file system of cfg below dir, in this process's mount namespace.
func mountRoot(cfg shim.Config, dir string) (*rootfs, error) {
	r := &rootfs{path: filepath.Join(dir, "root")}
	if err := os.MkdirAll(r.path, 0o755); err != nil {
		return nil, err
	}
	root := cfg.Spec.Root
	lower := append([]string(nil), root.Layers...)
	image, isDir := strings.CutPrefix(root.Image, "dir:")
	if isDir {
		lower = append(lower, image)
	}
	// The base is below a directory image too: it gives the mount points that the image may lack.
	lower = append(lower, cfg.Base)
	if err := overlay(r.path, lower, root.Upper, root.Work); err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "root_unmountable", "mount the root file system of %s", cfg.Spec.ID)
	}
	r.mounts = append(r.mounts, r.path)
	if !isDir {
		if err := r.bindReadOnly("/usr", "usr"); err != nil {
			return nil, errors.Join(err, r.unmount())
		}
	}
	if err := identify(r.path, cfg); err != nil {
		return nil, errors.Join(err, r.unmount())
	}
	return r, nil
}

// overlay mounts upper over lower (top first) at target.
func overlay(target string, lower []string, upper, work string) error {
	if err := overlayByParts(target, lower, upper, work); err == nil || !errors.Is(err, errOldKernel) {
		return err
	}
	// Kernels before 6.7 take all layers in one string of at most a page.
	options := append([]string{"lowerdir=" + strings.Join(lower, ":"), "upperdir=" + upper, "workdir=" + work}, overlayOptions...)
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
	for _, option := range overlayOptions {
		key, value, _ := strings.Cut(option, "=")
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
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "root_unmountable", "show the host's %s", source)
	}
	r.mounts = append(r.mounts, target)
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "root_unmountable", "make the host's %s read-only", source)
	}
	return nil
}

// unmount undoes mountRoot.
func (r *rootfs) unmount() error {
	var errs []error
	for i := len(r.mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(r.mounts[i], unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", r.mounts[i], err))
		}
	}
	r.mounts = nil
	return errors.Join(append(errs, os.Remove(r.path))...)
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
