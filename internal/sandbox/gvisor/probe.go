package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// probeResult is what "perdure-engine probe" prints. The engine knows it best, and runs under the conditions of a shim.
type probeResult struct {
	Version string // of gVisor
	Reason  string // why sandboxes cannot run; "" if they can
	TAP     string // why there is no network; "" if there is
	Cgroups string // why limits do not hold; "" if they do
}

// Capabilities implements sandbox.Driver.
func (d *Driver) Capabilities(ctx context.Context) sandbox.Capabilities {
	res, err := d.probe(ctx)
	if err != nil {
		res.Reason = err.Error()
	} else if _, err := beside(d.opts.Guest, "perdure-guest"); err != nil {
		res.Reason = err.Error()
	}
	c := sandbox.Capabilities{
		Available: res.Reason == "", Memory: true, Network: res.TAP == "", Isolation: "kernel", Version: res.Version,
	}
	for name, why := range map[string]string{"sandbox": res.Reason, "network": res.TAP, "limits": res.Cgroups} {
		if why != "" {
			c.Missing = append(c.Missing, name+": "+why)
		}
	}
	if !c.Available {
		c.Missing = append(c.Missing, "to run without isolation: --driver process")
	}
	return c
}

// probe asks the engine. Errors: engine_missing, driver_unavailable.
func (d *Driver) probe(ctx context.Context) (probeResult, error) {
	engine, err := beside(d.opts.Engine, "perdure-engine")
	if err != nil {
		return probeResult{}, err
	}
	cmd := exec.CommandContext(ctx, engine, "probe")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return probeResult{}, errdefs.Wrap(err, errdefs.Unavailable, "driver_unavailable", "ask %s: %s", engine,
				strings.TrimSpace(string(exit.Stderr)))
		}
		return probeResult{Reason: "namespaces cannot be made: " + err.Error()}, nil
	}
	var res probeResult
	if err := json.Unmarshal(out, &res); err != nil {
		return probeResult{}, errdefs.Wrap(err, errdefs.Internal, "engine_failed", "read what %s says", engine)
	}
	return res, nil
}
