package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
)

// A spare is a shim without a sandbox's spec: it makes what it can, says so, and waits on a socket. The daemon's end of that socket is its
// life: when it closes, by whatever hand, the spare ends and takes all with it. To put it to use, the daemon gives the spare's directory
// the name of the sandbox's state directory, and sends a claim. From then on the shim is like any other.

// claim tells a spare where it is now. What to run is in the configuration there.
type claim struct{ Dir string }

// SpareMain runs a spare in dir, and when it is claimed the shim that it becomes, and returns the exit code. engines maps drivers to what
// makes their spares.
func SpareMain(ctx context.Context, dir string, engines map[string]SpareFactory) int {
	log, conn := enter()
	spare, err := prepare(dir, engines, func(cfg Config, make SpareFactory) (Spare, error) { return make(ctx, cfg, dir, log) })
	if err != nil {
		log.Error("cannot make a spare", "error", err)
	}
	leave := func() int { // whoever started it is gone, or wants it no more
		if spare != nil {
			err = errors.Join(err, spare.Destroy(ctx))
		}
		return exitCode(errors.Join(err, os.RemoveAll(dir)))
	}
	if report(conn, err) != nil {
		return leave()
	}
	if err != nil {
		return 1 // the log stays, for whoever reads it
	}
	var to claim
	if json.NewDecoder(conn).Decode(&to) != nil {
		return leave()
	}
	return run(ctx, to.Dir, log, conn, true, func(cfg Config) (Engine, error) { return spare.Take(cfg, to.Dir), nil })
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

func prepare(dir string, engines map[string]SpareFactory, make func(cfg Config, f SpareFactory) (Spare, error)) (Spare, error) {
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	cfg, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(LinkDir, 0o700); err != nil {
		return nil, err
	}
	factory, ok := engines[cfg.Driver]
	if !ok {
		return nil, errdefs.New(errdefs.Invalid, "driver_unknown", "the engine makes no spares of driver %q", cfg.Driver)
	}
	return make(cfg, factory)
}

// SpareProcess is a spare, seen from the daemon.
type SpareProcess struct {
	dir string
	*process
}

// PrepareSpare starts a spare in cfg.Spec.StateDir, which it makes, and returns when it is ready. If it fails nothing is left.
func PrepareSpare(ctx context.Context, cfg Config, opt LaunchOptions) (*SpareProcess, error) {
	dir := cfg.Spec.StateDir
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	p, err := startSpare(dir, cfg, opt)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	result, err := p.answer(ctx)
	if err == nil && result.Error != nil {
		err = result.Error.err()
	}
	if err != nil {
		err = fmt.Errorf("make a spare sandbox: %w: %s", err, logTail(dir))
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func startSpare(dir string, cfg Config, opt LaunchOptions) (*SpareProcess, error) {
	if err := writeJSON(filepath.Join(dir, configFile), cfg); err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	p, err := spawn(dir, opt, os.NewFile(uintptr(fds[0]), "spare"), os.NewFile(uintptr(fds[1]), "spare's end"), "--dir", dir, "--spare")
	if err != nil {
		return nil, err
	}
	return &SpareProcess{dir, p}, nil
}

// Launch makes of the spare the sandbox of cfg, and returns when it answers. It is Launch without its first half: errors are the same, but
// for those with the code SpareUnfit, after which an ordinary launch may succeed. Either way the spare is used up.
func (s *SpareProcess) Launch(ctx context.Context, cfg Config) (*Client, error) {
	unfit := func(err error) (*Client, error) {
		err = errdefs.Wrap(err, errdefs.Unavailable, SpareUnfit, "use a spare sandbox")
		return nil, errors.Join(err, s.Close())
	}
	// First the configuration: a directory with the name of a sandbox always has one, so the next daemon can end what is in it.
	if err := writeJSON(filepath.Join(s.dir, configFile), cfg); err != nil {
		return unfit(err)
	}
	if err := unix.Rename(s.dir, cfg.Spec.StateDir); err != nil { // unlike os.Rename it lets the empty directory there give way
		return unfit(err)
	}
	s.dir = cfg.Spec.StateDir
	if err := json.NewEncoder(s.ready).Encode(claim{Dir: s.dir}); err != nil {
		s.kill()
		s.ready.Close()
		err = errdefs.Wrap(err, errdefs.Unavailable, SpareUnfit, "claim a spare sandbox")
		return nil, errors.Join(err, emptyDir(s.dir, logFile))
	}
	return s.await(ctx, cfg)
}

// Close ends a spare that has not been used, and returns when nothing is left of it.
func (s *SpareProcess) Close() error {
	s.ready.Close()
	<-s.exited
	return os.RemoveAll(s.dir)
}
