package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// probeResult is what "perdure-engine probe DIR" prints. The engine knows it best, and runs under the conditions of a shim.
type probeResult struct {
	Version string // of gVisor
	Reason  string // why sandboxes cannot run; "" if they can
	TAP     string // why there is no network; "" if there is
	Cgroups string // why limits do not hold; "" if they do
	CPU     *sandbox.CPU
}

// Capabilities implements sandbox.Driver.
func (d *Driver) Capabilities(ctx context.Context) sandbox.Capabilities {
	res, err := d.probed(ctx)
	if err == nil {
		_, err = shim.Binary(d.opts.Guest, "perdure-guest")
	}
	hint := ""
	switch {
	case err != nil:
		res.Reason, hint = err.Error(), errdefs.HintOf(err)
	case res.Reason != "" && os.Geteuid() != 0:
		hint = "permit user namespaces, or run the daemon as root"
	}
	c := sandbox.Capabilities{
		Available: res.Reason == "", Memory: true, Network: res.TAP == "", Isolation: "kernel", Version: res.Version, Hint: hint,
		CPU: res.CPU,
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

// complete reports whether nothing is missing.
func (r probeResult) complete() bool { return r.Reason == "" && r.TAP == "" && r.Cgroups == "" }

// incompleteFor is how long an answer holds that says that something is missing: somebody may be about to mend it.
const incompleteFor = 2 * time.Second

// probes keeps the last answer of the engine. Asking takes a process of its own, some 50 ms, and whatever users wait for needs to know.
type probes struct {
	mu     sync.Mutex // guards all below; held while asking, so that those who come at the same time share an answer
	result probeResult
	binary os.FileInfo // of the engine that gave it; nil: none has
	at     time.Time
}

// probed returns what the engine says, which is asked again when its binary is another or when something was missing a while ago.
func (d *Driver) probed(ctx context.Context) (probeResult, error) {
	engine, err := shim.Binary(d.opts.Engine, "perdure-engine")
	if err != nil {
		return probeResult{}, err
	}
	binary, err := os.Stat(engine)
	if err != nil {
		return probeResult{}, errdefs.Wrap(err, errdefs.Unavailable, "engine_missing", "look at %s", engine)
	}
	p := &d.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	now := d.opts.Clock.Now()
	if p.binary != nil && sameBinary(p.binary, binary) && (p.result.complete() || now.Sub(p.at) < incompleteFor) {
		return p.result, nil
	}
	p.binary = nil
	res, err := d.probe(ctx)
	if err == nil {
		p.result, p.binary, p.at = res, binary, now
	}
	return res, err
}

// sameBinary reports whether nobody has put another file in the place of a.
func sameBinary(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// probe asks the engine. Errors: engine_missing, driver_unavailable.
func (d *Driver) probe(ctx context.Context) (probeResult, error) {
	engine, err := shim.Binary(d.opts.Engine, "perdure-engine")
	if err != nil {
		return probeResult{}, err
	}
	cmd := exec.CommandContext(ctx, engine, "probe", d.opts.Cache)
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
