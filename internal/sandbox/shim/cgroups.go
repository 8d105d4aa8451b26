package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

const cgroupRoot = "/sys/fs/cgroup"

// CgroupName is the control group of a sandbox, below the root of each hierarchy.
func CgroupName(sandbox id.Sandbox) string {
	return "/perdure-" + strings.ReplaceAll(string(sandbox), "/", "_")
}

// Cgroups lists the control group directories that there are for a sandbox.
func Cgroups(sandbox id.Sandbox) []string {
	name := CgroupName(sandbox)
	var found []string
	for _, pattern := range []string{cgroupRoot + name, cgroupRoot + "/*" + name} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue // only for a malformed pattern
		}
		for _, dir := range dirs {
			// cpu and cpuacct are often links to one directory.
			if real, err := filepath.EvalSymlinks(dir); err == nil {
				found = append(found, real)
			}
		}
	}
	return found
}

// RemoveCgroup kills what is in a control group and removes it, with the groups below. A missing one is fine.
func RemoveCgroup(dir string) error {
	const tries, pause = 200, 5 * time.Millisecond // killed processes leave the group a moment later
	for range tries {
		err := removeCgroup(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(pause)
	}
	return errdefs.New(errdefs.Unavailable, "cgroup_busy", "the control group %s does not become empty", dir)
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(string(procs)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // the group is ours: whoever is in it is to go
		}
	}
	return unix.Rmdir(dir)
}
