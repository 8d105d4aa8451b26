package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"

	"perdure.dev/perdure/internal/egress/gateway"
	"perdure.dev/perdure/internal/sandbox"
)

// probe prints what runs here, with files below dir, and what is missing. It is started with the rights that a shim would have.
func probe(dir string) int {
	res := struct {
		Version, Reason, TAP, Cgroups string
		CPU                           sandbox.CPU
	}{Version: version(), CPU: processor()}
	if err := probeMount(dir); err != nil {
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

// processor says what gVisor notes in each image of the processor, and compares before it restores one.
func processor() sandbox.CPU {
	cpuid.Initialize()
	host := cpuid.HostFeatureSet()
	out := sandbox.CPU{CacheLine: int(host.CacheLine())}
	for _, f := range cpuid.AllFeatures() {
		if host.HasFeature(f) {
			out.Features = append(out.Features, f.String())
		}
	}
	slices.Sort(out.Features)
	return out
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

// probeMount tries whether this process may mount the root of a workspace with its files below place.
func probeMount(place string) error {
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(place, "probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(at(name), 0o755); err != nil {
			return err
		}
	}
	if err := overlay(at("root"), []string{at("lower")}, at("upper"), at("work")); err != nil {
		return fmt.Errorf("the file system of a workspace cannot be mounted: %w", err)
	}
	return unix.Unmount(at("root"), unix.MNT_DETACH)
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
