package process

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// Name is the driver's name.
const Name = "process"

// version is that of the driver; it has no engine.
const version = "1"

// Options configure a Driver.
type Options struct {
	Engine string // path of perdure-engine; "": beside the running binary
	Guest  string // path of perdure-guest; "": beside the running binary
	Log    *slog.Logger
}

// Driver runs sandboxes that are none.
type Driver struct{ opts Options }

var _ sandbox.Driver = (*Driver)(nil)

// New returns a driver.
func New(opts Options) *Driver { return &Driver{opts: opts} }

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// missing is what every sandbox of this driver runs without.
func missing() []string {
	return []string{
		"isolation: commands run with your own rights and see this machine's files",
		"memory: checkpoints hold files only",
		"network gateway: commands use this machine's network unjudged",
		"limits: memory and processes are not bounded",
	}
}

// Capabilities implements sandbox.Driver.
func (d *Driver) Capabilities(context.Context) sandbox.Capabilities {
	c := sandbox.Capabilities{Available: true, FlatFiles: true, Isolation: "none", Version: version, Missing: missing()}
	for path, name := range map[string]string{d.opts.Engine: "perdure-engine", d.opts.Guest: "perdure-guest"} {
		if _, err := shim.Binary(path, name); err != nil {
			c.Available, c.Hint = false, errdefs.HintOf(err)
			c.Missing = append([]string{err.Error()}, c.Missing...)
		}
	}
	return c
}

// Start implements sandbox.Driver.
func (d *Driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	engine, err := shim.Binary(d.opts.Engine, "perdure-engine")
	if err != nil {
		return nil, err
	}
	guest, err := shim.Binary(d.opts.Guest, "perdure-guest")
	if err != nil {
		return nil, err
	}
	layers := spec.Root.Layers
	image, isDir := strings.CutPrefix(spec.Root.Image, "dir:")
	switch {
	case isDir:
		layers = append(append([]string(nil), layers...), image)
	case strings.HasPrefix(spec.Root.Image, sandbox.StoredImage):
		return nil, errdefs.New(errdefs.Invalid, "image_unsupported", "the process driver shows commands this machine's own files, and cannot give them those of %s", spec.Root.Image).
			WithHint("use --driver gvisor")
	case spec.Root.Image != "host":
		return nil, errdefs.New(errdefs.Invalid, "image_unknown", "there is no image %q", spec.Root.Image).WithHint("use host, or dir:PATH")
	}
	if isDir {
		if info, err := os.Stat(image); err != nil || !info.IsDir() {
			return nil, errdefs.New(errdefs.Invalid, "image_invalid", "the image %s is no directory", spec.Root.Image)
		}
	}
	if err := materialise(ctx, spec.Root.Upper, layers); err != nil {
		return nil, errdefs.Wrap(err, errdefs.KindOf(err), "root_unwritable", "bring the files of %s into place", spec.ID)
	}
	cfg := shim.Config{
		Driver: Name, Version: version, Spec: spec, Guest: guest,
		MachineID: shim.MachineID(spec.Session), Missing: missing(),
	}
	cfg.Spec.Env = append(append([]string(nil), spec.Env...), "HOME="+spec.Root.Upper, marker(cfg))
	c, err := shim.Launch(ctx, cfg, shim.LaunchOptions{Engine: engine})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// materialise copies the layers below an empty upper directory into it. One that has files was materialised before.
func materialise(ctx context.Context, upper string, layers []string) error {
	entries, err := os.ReadDir(upper)
	if err != nil || len(entries) > 0 || len(layers) == 0 {
		return err
	}
	_, err = layer.Flatten(ctx, upper, layers)
	return err
}

// Restore implements sandbox.Driver. Error: memory_unsupported.
func (d *Driver) Restore(context.Context, sandbox.Spec, sandbox.Image) (sandbox.Sandbox, error) {
	return nil, errMemory()
}

// Rollback implements sandbox.Driver. Error: memory_unsupported.
func (d *Driver) Rollback(context.Context, sandbox.Sandbox, sandbox.Spec, sandbox.Image) (sandbox.Sandbox, error) {
	return nil, errMemory()
}

func errMemory() error {
	return errdefs.New(errdefs.Conflict, "memory_unsupported", "the process driver cannot keep memory").
		WithHint("restore the files alone, or use --driver gvisor")
}

// Origin implements sandbox.Driver: there are no images.
func (d *Driver) Origin(context.Context, sandbox.Image) (map[string]string, error) { return nil, nil }

// Provide implements sandbox.Driver.
func (d *Driver) Provide(_ context.Context, name string, _ time.Time, _ io.Reader) error {
	return errdefs.New(errdefs.Invalid, "origin_invalid", "%.100q is no file of the driver %s", name, Name)
}

// Recover implements sandbox.Driver.
func (d *Driver) Recover(ctx context.Context, stateDir string) (sandbox.Sandbox, error) {
	c, err := shim.Recover(ctx, stateDir)
	if err != nil {
		return nil, err
	}
	return c, nil
}
