package gvisor

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// Name is the driver's name.
const Name = "gvisor"

// Options configure a Driver.
type Options struct {
	Engine string // path of perdure-engine; "": beside the running binary
	Guest  string // path of perdure-guest; "": beside the running binary
	Cache  string // directory for bases and guest binaries; made if missing
	Spare  bool   // keep a sandbox ready ahead of need, once one has been started; Close ends it
	Log    *slog.Logger
	Clock  clock.Clock // nil: the machine's
}

// Driver runs sandboxes on gVisor.
type Driver struct {
	opts   Options
	probes probes
	spares spares

	mu     sync.Mutex // guards all below
	ready  bool
	base   string
	mounts string
	guest  string
}

var _ sandbox.Driver = (*Driver)(nil)

// New returns a driver. It looks at nothing yet: see Capabilities.
func New(opts Options) *Driver {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	return &Driver{opts: opts}
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Start implements sandbox.Driver.
func (d *Driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	cfg, err := d.config(ctx, spec)
	if err != nil {
		return nil, err
	}
	return sandboxOrErr(d.launch(ctx, cfg))
}

// Restore implements sandbox.Driver.
func (d *Driver) Restore(ctx context.Context, spec sandbox.Spec, image sandbox.Image) (sandbox.Sandbox, error) {
	return sandboxOrErr(d.restore(ctx, spec, image))
}

// sandboxOrErr keeps a nil client from becoming a sandbox that is not nil.
func sandboxOrErr(c *shim.Client, err error) (sandbox.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (d *Driver) restore(ctx context.Context, spec sandbox.Spec, image sandbox.Image) (*shim.Client, error) {
	cfg, err := d.config(ctx, spec)
	if err != nil {
		return nil, err
	}
	if image.Driver != Name || image.Version != cfg.Version {
		return nil, errdefs.New(errdefs.Conflict, "image_mismatch", "the memory image is of %s %s, and this is %s %s",
			image.Driver, image.Version, Name, cfg.Version).WithHint("restore the files alone")
	}
	origin, err := shim.ReadOrigin(image.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.Guest, err = d.provided(origin.Guest); err != nil {
		return nil, err
	}
	if origin.Base != "" {
		base, err := d.provided(origin.Base)
		switch {
		case err == nil:
			cfg.Base = base
		case cfg.Base == "":
			return nil, err
		} // else this machine's, which is another: gVisor refuses the image if a program has one of its files open
	}
	cfg.Image = &image
	if origin.CPU != nil {
		cfg.CPU = origin.CPU // its programs have seen no more than this
	}
	return d.launch(ctx, cfg)
}

// Rollback implements sandbox.Driver.
func (d *Driver) Rollback(ctx context.Context, old sandbox.Sandbox, spec sandbox.Spec, image sandbox.Image) (sandbox.Sandbox, error) {
	return shim.RestoreBeside(ctx, old, func(ctx context.Context) (*shim.Client, error) {
		return d.restore(ctx, spec, image)
	})
}

// Recover implements sandbox.Driver.
func (d *Driver) Recover(ctx context.Context, stateDir string) (sandbox.Sandbox, error) {
	return sandboxOrErr(shim.Recover(ctx, stateDir))
}

// config makes the shim's configuration for a boot.
func (d *Driver) config(ctx context.Context, spec sandbox.Spec) (shim.Config, error) {
	image := spec.Root.Image
	stored := strings.HasPrefix(image, sandbox.StoredImage)
	if dir, ok := strings.CutPrefix(image, "dir:"); ok {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
			return shim.Config{}, errdefs.New(errdefs.Invalid, "image_invalid", "the image %s is no directory", image).
				WithHint("dir: takes the absolute path of a directory that holds a root file system")
		}
	} else if image != "host" && (!stored || len(spec.Root.Lower) == 0) {
		return shim.Config{}, errdefs.New(errdefs.Invalid, "image_unknown", "there is no image %q", image).
			WithHint("use host, dir:PATH, or an image that perdure image ls shows")
	}
	res, err := d.probed(ctx)
	if err != nil {
		return shim.Config{}, err
	}
	if res.Reason != "" {
		return shim.Config{}, unavailable(res.Reason)
	}
	if err := d.prepare(); err != nil {
		return shim.Config{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	cfg := shim.Config{
		Driver: Name, Version: res.Version, Spec: spec, Guest: d.guest, Base: d.base,
		MachineID: shim.MachineID(spec.Session), Missing: missing(spec, res), CPU: res.CPU,
	}
	if image != "host" {
		cfg.Base = d.mounts
	}
	if os.Geteuid() != 0 { // one user is mapped: no other could make a file
		cfg.Spec.User = ""
	}
	return cfg, nil
}

// missing lists what this sandbox asked for and does not get.
func missing(spec sandbox.Spec, res probeResult) []string {
	var list []string
	if spec.Limits.MemoryBytes > 0 && res.Cgroups != "" {
		list = append(list, "memory limit: "+res.Cgroups)
	}
	if spec.User != "" && os.Geteuid() != 0 {
		list = append(list, "user "+spec.User+": without root, files have one owner, and commands run as root inside")
	}
	return list
}

// prepare fills the cache, once.
func (d *Driver) prepare() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready {
		return nil
	}
	binary, err := shim.Binary(d.opts.Guest, "perdure-guest")
	if err != nil {
		return err
	}
	if d.guest, err = ensureGuest(d.opts.Cache, binary); err == nil {
		if d.base, err = ensureBase(d.opts.Cache); err == nil {
			d.mounts, err = ensureMounts(d.opts.Cache)
		}
	}
	if err == nil {
		err = sweepSpares(d.opts.Cache)
	}
	if err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "base_failed", "prepare the base of all sandboxes in %s", d.opts.Cache)
	}
	d.ready = true
	return nil
}

func unavailable(reason string) error {
	return errdefs.New(errdefs.Unavailable, "driver_unavailable", "gVisor cannot run here: %s", reason).
		WithHint("run as root, or do without isolation: --driver process")
}
