package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/egress"
	"perdure.dev/perdure/internal/egress/gateway"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor/pages"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// Engine is a shim.Engine that runs a gVisor sandbox.
type Engine struct {
	cfg  shim.Config
	dir  string // the state directory
	conf *config.Config
	log  *slog.Logger

	prepared  bool // made ahead, see spare.go
	root      *rootfs
	namespace *gateway.Namespace
	gate      *os.File // what a spare's gofer waits at
	device    *os.File // the namespace's, until the gateway takes it
	gateway   *gateway.Gateway
	container *container.Container
	hostFiles map[string]hostFile // see hostfiles.go
	running   shim.Running
	memory    *memoryGuard  // nil: memory is not limited
	image     *pages.Image  // the last one, or that it was restored from; nil if there is none to compare with
	saver     *pages.Saver  // of an image that Prepare has begun
	ended     chan struct{} // closed when the sandbox process was reaped
	cause     string        // valid once ended is closed
	filesLost atomic.Bool   // see watchGofer
}

var _ shim.Engine = (*Engine)(nil)

// New makes the engine for cfg. It is a shim.Factory.
func New(cfg shim.Config, stateDir string, log *slog.Logger) (shim.Engine, error) {
	if limited(cfg) && probeCgroups() != nil {
		cfg.Spec.Limits = sandbox.Limits{} // the driver has said so in cfg.Missing; the guest keeps its own limits
	}
	conf, err := gvisorConfig(cfg, stateDir)
	if err != nil {
		return nil, fmt.Errorf("configure gVisor: %w", err)
	}
	if err := openLink(stateDir); err != nil {
		return nil, err
	}
	return &Engine{cfg: cfg, dir: stateDir, conf: conf, log: log, ended: make(chan struct{}), hostFiles: map[string]hostFile{}}, nil
}

// Start implements shim.Engine.
func (e *Engine) Start(ctx context.Context) error {
	var err error
	steps := []any{}
	began := time.Now()
	step := func(name string) { // of the log's line on where the time went
		steps = append(steps, name, time.Since(began).Round(100*time.Microsecond))
		began = time.Now()
	}
	var intro *introduction
	if e.prepared && e.cfg.Image != nil {
		intro = e.introduce()
		defer intro.close()
	}
	if err := e.checkHostFiles(); err != nil {
		return err
	}
	if err := e.mountRoot(); err != nil {
		return err
	}
	step("root")
	if !e.prepared {
		e.openNamespace(e.cfg.Spec.Network == sandbox.NetworkGateway)
	}
	if err := e.openGateway(ctx); err != nil {
		return err
	}
	step("network")
	spec := e.spec()
	if e.prepared {
		err = e.release(spec)
	} else {
		err = e.create(spec)
	}
	if err != nil {
		return err
	}
	step("create")
	if err := e.note(); err != nil {
		return err
	}
	e.openMemory()
	c := e.container
	go e.reap(c)
	if err := e.watchGofer(); err != nil {
		return errdefs.Wrap(err, errdefs.Internal, "engine_failed", "watch the sandbox")
	}
	if e.cfg.Image == nil {
		err = c.Start(e.conf)
	} else {
		err = e.restore(e.cfg.Image.Dir, intro)
	}
	switch {
	case err != nil && refused(err):
		return errdefs.Wrap(err, errdefs.Conflict, sandbox.ImageRefused, "the memory image does not fit this machine any more")
	case err != nil && e.cfg.Image != nil:
		return errdefs.Wrap(err, errdefs.Internal, "restore_failed", "start the sandbox (%s)", e.bootLog())
	case err != nil:
		return errdefs.Wrap(err, errdefs.Internal, "engine_failed", "start the sandbox (%s)", e.bootLog())
	}
	step("boot")
	e.log.Info("sandbox made", steps...)
	return nil
}

// refusals are how gVisor words that an image is whole but does not fit: it was taken on a processor with more features (cpuid), a file
// that a process has open is gone (vfs), or the sandbox is described otherwise (specutils). Only the text crosses its socket.
var refusals = []string{
	"incompatible FeatureSet: ", "restore failed due to external file system state in corruption: ", "failed to handle restore spec validation: ",
}

func refused(err error) bool {
	return slices.ContainsFunc(refusals, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// mountRoot puts the root file system in place.
func (e *Engine) mountRoot() error {
	if e.root == nil {
		e.root = &rootfs{path: filepath.Join(e.dir, rootDir)}
	}
	return e.root.mount(e.cfg)
}

// create makes the sandbox's processes.
func (e *Engine) create(spec *specs.Spec) error {
	bundle := filepath.Join(e.dir, bundleDir)
	if err := writeBundle(bundle, spec); err != nil {
		return err
	}
	c, err := container.New(e.conf, container.Args{
		ID:        containerID(e.cfg.Spec.ID),
		Spec:      spec,
		BundleDir: bundle,
		// The kernel kills the sandbox when the shim dies; to be exact, when the thread ends that has made it. So no goroutine of the
		// shim may end while it is locked to its thread, which would end that.
		Attached: true,
	})
	if err != nil {
		return errdefs.Wrap(err, errdefs.Internal, "engine_failed", "make the sandbox (%s)", e.bootLog())
	}
	e.container = c
	return nil
}

// openNamespace makes the network namespace, with a device if it is to have one, or does without.
func (e *Engine) openNamespace(device bool) {
	ns, err := gateway.NewNamespace(device)
	if err != nil && device {
		e.running.Missing = append(e.running.Missing, "network: "+err.Error())
		ns, err = gateway.NewNamespace(false)
	}
	if err != nil {
		e.running.Missing = append(e.running.Missing, "network namespace: "+err.Error())
		e.conf.Network = config.NetworkNone
		return
	}
	e.namespace = ns
	if e.device = ns.TakeDevice(); e.device == nil {
		e.conf.Network = config.NetworkNone
	}
}

// openGateway starts the other end of the sandbox's network, if it has one.
func (e *Engine) openGateway(ctx context.Context) error {
	if e.device == nil {
		return nil
	}
	device := e.device
	e.device = nil
	var err error
	e.gateway, err = gateway.New(ctx, device, gateway.Config{
		Session: e.cfg.Spec.Session,
		Sandbox: e.cfg.Spec.ID,
		Decide:  egress.Logged(egress.Refuse, e.log, clock.System{}),
	})
	return err
}

// note records which processes run.
func (e *Engine) note() error {
	e.running.Processes = nil
	for name, pid := range map[string]int{"sandbox": e.container.Sandbox.Getpid(), "gofer": e.container.GoferPid.Load()} {
		p, err := shim.ProcessOf(name, pid)
		if err != nil {
			return fmt.Errorf("look at the %s process: %w", name, err)
		}
		e.running.Processes = append(e.running.Processes, p)
	}
	e.running.Cgroups = e.cgroups()
	return nil
}

// reap waits for the sandbox process and notes how it ended. Owned by Start; ends with the sandbox.
func (e *Engine) reap(c *container.Container) {
	status, err := c.Sandbox.Wait(c.ID)
	switch {
	case err != nil:
		e.cause = "the sandbox process is gone: " + err.Error()
	case status.Signaled() && status.Signal() == unix.SIGKILL && e.outOfMemory():
		e.cause = "it ran out of memory and was killed"
	case status.Signaled() && e.filesLost.Load():
		e.cause = "the process that serves its files died, and it was ended"
	case status.Signaled():
		e.cause = fmt.Sprintf("the sandbox process was killed by signal %d (%s)", int(status.Signal()), unix.SignalName(status.Signal()))
	default:
		e.cause = fmt.Sprintf("the guest ended with status %d (%s)", status.ExitStatus(), e.bootLog())
	}
	close(e.ended)
}

// Wait implements shim.Engine.
func (e *Engine) Wait() string {
	<-e.ended
	return e.cause
}

// Running implements shim.Engine.
func (e *Engine) Running() shim.Running { return e.running }

// Pause implements shim.Engine.
func (e *Engine) Pause(context.Context) error { return e.container.Pause() }

// Unpause implements shim.Engine.
func (e *Engine) Unpause(context.Context) error { return e.container.Resume() }

// Nudge implements shim.Engine: SIGUSR1 interrupts the guest's read.
func (e *Engine) Nudge(context.Context) error {
	return e.container.SignalContainer(unix.SIGUSR1, false)
}

// Destroy implements shim.Engine.
//
// Three things take long and do not need each other: ending the processes, whose memory is freed; writing what the file system below the
// root has not written, such as a memory image just saved, which unmounting an overlay does; and taking down the network.
func (e *Engine) Destroy(context.Context) error {
	written := e.writeBack()
	var errs []error
	if e.container != nil {
		errs = append(errs, e.container.Destroy())
	}
	network := make(chan error, 1)
	go func() { network <- e.closeNetwork() }()
	if e.gate != nil {
		e.gate.Close() // by now it may have been opened, and closed
	}
	for _, dir := range e.cgroups() { // those that are there, noted or not
		errs = append(errs, shim.RemoveCgroup(dir))
	}
	<-written
	if e.root != nil {
		errs = append(errs, e.root.unmount())
	}
	errs = append(errs, <-network, closeLink(e.dir))
	e.dropSaver()
	e.forgetImage()
	e.container, e.gateway, e.device, e.namespace, e.root = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// writeBack has the file system of the upper directory written in the background, and closes the channel when it is. It is no promise: it
// only leaves unmounting less to do.
func (e *Engine) writeBack() <-chan struct{} {
	done := make(chan struct{})
	upper, err := os.Open(e.cfg.Spec.Root.Upper)
	if e.root == nil || err != nil { // a spare's has none
		upper.Close()
		close(done)
		return done
	}
	go func() {
		defer close(done)
		defer upper.Close()
		if err := unix.Syncfs(int(upper.Fd())); err != nil {
			e.log.Warn("cannot write back the workspace's files", "error", err)
		}
	}()
	return done
}

func (e *Engine) closeNetwork() error {
	var errs []error
	if e.gateway != nil {
		e.gateway.Close()
	}
	if e.device != nil {
		errs = append(errs, e.device.Close())
	}
	if e.namespace != nil {
		e.namespace.Close()
	}
	// gVisor pins the gofer's empty network namespace there, for sandboxes that share the directory.
	if err := unix.Unmount(filepath.Join(e.conf.RootDir, "null-netns"), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		errs = append(errs, fmt.Errorf("unpin the gofer's network: %w", err))
	}
	return errors.Join(errs...)
}

// bootLog returns the last words of the sandbox, for error messages.
func (e *Engine) bootLog() string {
	b, err := os.ReadFile(filepath.Join(e.dir, panicLog))
	if err != nil || len(b) == 0 {
		return "it left no message"
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
