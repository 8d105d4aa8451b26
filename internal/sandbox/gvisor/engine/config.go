package engine

import (
	"flag"
	"fmt"
	"path/filepath"

	gflag "gvisor.dev/gvisor/runsc/flag"

	"gvisor.dev/gvisor/runsc/config"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox/shim"
)

const panicLog = "boot-panic.log"

// settings are gVisor's flags that differ from its defaults.
func settings(cfg shim.Config, dir string) map[string]string {
	s := map[string]string{
		// By way of the shim's working directory, which is the state directory: a spare's changes its name when it is put to use.
		"root":     "/proc/self/cwd/gvisor",
		"platform": "systrap",
		// Files land in the overlay's upper directory on the host as they are written: that is the workspace's own layer.
		"overlay2": "none",
		// The guest dials out to the shim's socket.
		"host-uds": "open",
		"network":  "sandbox",
		// The sandbox is the only one to change its files, so it may cache them.
		"file-access":        "exclusive",
		"file-access-mounts": "exclusive",
		"host-settings":      "ignore",
		// Inside, root may use su and sudo like root on any machine.
		"allow-suid":      "true",
		"net-raw":         "true",
		"watchdog-action": "log",
		// For the limit on processes: in version 1 the engine charges a process to a hierarchy taken at random.
		"in-sandbox-cgroup": "v2",
		"panic-log":         filepath.Join(dir, panicLog),
		"ignore-cgroups":    fmt.Sprint(!limited(cfg)),
	}
	return s
}

// gvisorConfig makes gVisor's configuration.
func gvisorConfig(cfg shim.Config, dir string) (*config.Config, error) {
	set := gflag.NewFlagSet("engine", flag.ContinueOnError)
	config.RegisterFlags(set)
	for name, value := range settings(cfg, dir) {
		if err := set.Set(name, value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	return config.NewFromFlags(set)
}

// containerID is the sandbox's id in gVisor's eyes; it is the same for every sandbox, since each has a root directory of its own and
// a memory image must be restorable under another id.
func containerID(id.Sandbox) string { return "perdure" }

func limited(cfg shim.Config) bool {
	return cfg.Spec.Limits.MemoryBytes > 0 || cfg.Spec.Limits.Processes > 0
}
