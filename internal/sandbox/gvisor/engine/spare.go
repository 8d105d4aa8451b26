package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// A spare is a sandbox whose processes have been made before anybody knows what it will run. Two things make that possible:
//
//   - The place of the root is a shared mount when the gofer (gVisor's file server) starts. What the shim mounts there later appears in
//     the gofer's mount namespace too.
//   - The gofer's first act is to tell the sandbox where the mounts are, with all links resolved, and only then does the sandbox go on.
//     A spare's gofer passes on what the shim promises, and waits at a gate for the files themselves. The shim keeps the promise by not
//     using the spare for a root in which a link stands in the way.

// The files of a spare, beside its bundle's config.json.
const (
	promiseFile = "promise.json" // the mounts, as the gofer will find them
	gateFile    = "gate"         // a FIFO: a byte in it opens the gate
)

// Prepare makes all of a sandbox but its files. It is a shim.SpareFactory.
func Prepare(ctx context.Context, cfg shim.Config, stateDir string, log *slog.Logger) (shim.Spare, error) {
	made, err := New(cfg, stateDir, log)
	if err != nil {
		return nil, err
	}
	e := made.(*Engine)
	e.prepared = true
	if err := e.prepare(); err != nil {
		return nil, errors.Join(err, e.Destroy(ctx))
	}
	return e, nil
}

func (e *Engine) prepare() error {
	e.root = &rootfs{path: filepath.Join(e.dir, rootDir)}
	if err := e.root.open(); err != nil {
		return err
	}
	e.openNamespace(e.cfg.Spec.Network == sandbox.NetworkGateway)
	spec := e.spec()
	bundle := filepath.Join(e.dir, bundleDir)
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		return err
	}
	mounts, err := e.promise(spec.Mounts)
	if err != nil {
		return err
	}
	b, err := json.Marshal(mounts)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, promiseFile), b, 0o600); err != nil {
		return err
	}
	gate := filepath.Join(bundle, gateFile)
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		return err
	}
	if e.gate, err = os.OpenFile(gate, os.O_RDWR, 0); err != nil { // for both: so neither end waits for the other to open
		return err
	}
	return e.create(spec)
}

// promise returns the mounts as the gofer resolves them when no link is in the way.
func (e *Engine) promise(mounts []specs.Mount) ([]specs.Mount, error) {
	out := slices.Clone(mounts)
	for i, m := range out {
		if !specutils.HasMountConfig(m) {
			continue
		}
		if strings.HasPrefix(m.Source, e.root.path) { // of the overlay that is to come
			out[i].Options = append(slices.Clone(m.Options), "overlayfs_stale_read")
			continue
		}
		var err error
		if out[i].Options, err = sandboxsetup.AdjustMountOptions(e.conf, m.Source, m.Options); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Take implements shim.Spare.
func (e *Engine) Take(cfg shim.Config, stateDir string) shim.Engine {
	e.cfg, e.dir = cfg, stateDir
	e.root.path = filepath.Join(stateDir, rootDir)
	return e
}

// release lets the gofer have the root.
func (e *Engine) release(spec *specs.Spec) error {
	if err := e.note(); err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, shim.SpareUnfit, "the spare sandbox has died")
	}
	for _, m := range spec.Mounts {
		if specutils.HasMountConfig(m) {
			if err := e.plain(m.Destination); err != nil {
				return err
			}
		}
	}
	// The gofer has the file open: it is written over, not replaced.
	if err := writeBundle(filepath.Join(e.dir, bundleDir), spec); err != nil {
		return err
	}
	if _, err := e.gate.Write([]byte{1}); err != nil {
		return err
	}
	return e.gate.Close()
}

// plain reports an error unless the way to a mount point in the root is of directories alone, as far as it exists.
func (e *Engine) plain(destination string) error {
	path := e.root.path
	for _, name := range strings.Split(strings.Trim(destination, "/"), "/") {
		path = filepath.Join(path, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !info.IsDir() && (destination != guestPath || !info.Mode().IsRegular()) {
			return errdefs.New(errdefs.Conflict, shim.SpareUnfit, "%s in the workspace is no directory", strings.TrimPrefix(path, e.root.path))
		}
	}
	return nil
}

// lateGofer is gVisor's file server, which in a spare waits for the files.
type lateGofer struct{ cmd.Gofer }

// Execute implements subcommands.Command.
func (g *lateGofer) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	bundle := f.Lookup("bundle").Value.String()
	promised, err := os.ReadFile(filepath.Join(bundle, promiseFile))
	if err == nil {
		err = awaitRoot(f, bundle, promised)
	} else if errors.Is(err, fs.ErrNotExist) { // no spare, or past the gate
		err = nil
	}
	if err != nil {
		util.Fatalf("wait for the root: %v", err)
	}
	return g.Gofer.Execute(ctx, f, args...)
}

// awaitRoot sends the promised mounts to the sandbox, waits at the gate, and leaves to the gofer a place to write what it has found.
func awaitRoot(f *flag.FlagSet, bundle string, promised []byte) error {
	var mounts []specs.Mount
	if err := json.Unmarshal(promised, &mounts); err != nil {
		return err
	}
	fd, ok := f.Lookup(mountsFlag).Value.(interface{ Get() any })
	if !ok {
		return errors.New("the gofer has another kind of flags")
	}
	number, ok := fd.Get().(int)
	if !ok {
		return errors.New("the gofer has another kind of flags")
	}
	gate, err := os.Open(filepath.Join(bundle, gateFile))
	if err != nil {
		return err
	}
	defer gate.Close()
	if err := sandboxsetup.WriteMounts(number, mounts); err != nil { // closes it
		return err
	}
	if _, err := gate.Read(make([]byte, 1)); err != nil {
		return err
	}
	found, err := unix.MemfdCreate("mounts", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	return f.Set(mountsFlag, strconv.Itoa(found))
}

const mountsFlag = "mounts-fd"
