package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/egress/gateway"
)

// probe prints what runs here and what is missing. It is started with the rights that a shim would have.
func probe() int {
	res := struct{ Version, Reason, TAP, Cgroups string }{Version: version()}
	if err := probeRoot(); err != nil {
		res.Reason = err.Error()
	} else if err := probeMount(); err != nil {
		res.Reason = err.Error()
	}
	if err := gateway.ProbeTAP(); err != nil {
		res.TAP = err.Error()
	}
	if err := probeCgroups(); err != nil {
		res.Cgroups = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		return 1
	}
	return 0
}

// version returns the version of gVisor that is linked in.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" {
			return m.Version
		}
	}
	return "unknown"
}

// probeRoot reports an error unless this process is root of the machine. In a user namespace mounts are permitted, but the overlay of
// a workspace is not: it would fail only when a sandbox starts.
func probeRoot() error {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	if f := strings.Fields(string(b)); len(f) < 2 || f[0] != "0" || f[1] != "0" {
		return errors.New("it needs root: the root of a user namespace cannot mount the workspace's overlay")
	}
	return nil
}

// probeMount tries whether this process may mount.
func probeMount() error {
	dir, err := os.MkdirTemp("", "perdure-probe-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("probe", dir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounts are forbidden: %w", err)
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// probeCgroups tries whether control groups can be made.
func probeCgroups() error {
	const root = "/sys/fs/cgroup"
	dirs := []string{filepath.Join(root, "memory"), filepath.Join(root, "pids")} // version 1
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		dirs = []string{root}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("no control groups: %w", err)
		}
		test := filepath.Join(dir, fmt.Sprintf("perdure-probe-%d", os.Getpid()))
		if err := os.Mkdir(test, 0o755); err != nil {
			return fmt.Errorf("control groups cannot be made: %w", err)
		}
		if err := os.Remove(test); err != nil {
			return err
		}
	}
	return nil
}
