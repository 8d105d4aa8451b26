package engine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"perdure.dev/perdure/internal/sandbox/shim"
)

// sentryProcesses is what gVisor itself needs of a limit on processes: its threads, and one or more stubs per process inside.
const sentryProcesses = 512

// resources are the limits in the OCI description. They bound the host processes; the guest bounds the ones inside.
func resources(cfg shim.Config) *specs.LinuxResources {
	r := &specs.LinuxResources{}
	if m := cfg.Spec.Limits.MemoryBytes; m > 0 {
		r.Memory = &specs.LinuxMemory{Limit: &m}
	}
	if p := int64(cfg.Spec.Limits.Processes); p > 0 {
		limit := 4*p + sentryProcesses
		r.Pids = &specs.LinuxPids{Limit: limit}
	}
	return r
}

// cgroups lists the control group directories that gVisor made for the sandbox.
func (e *Engine) cgroups() []string {
	if !limited(e.cfg) {
		return nil
	}
	return shim.Cgroups(e.cfg.Spec.ID)
}

// outOfMemory reports whether the kernel killed something in the sandbox's control group for its memory limit.
func (e *Engine) outOfMemory() bool {
	for _, dir := range e.running.Cgroups {
		for _, name := range []string{"memory.oom_control", "memory.events"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				if n, err := strconv.Atoi(value); key == "oom_kill" && err == nil && n > 0 {
					return true
				}
			}
		}
	}
	return false
}
