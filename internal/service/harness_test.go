package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/image/oci"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/model/scripted"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/process"
	"perdure.dev/perdure/internal/sandbox/sandboxtest"
	"perdure.dev/perdure/internal/service"
	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/snapshot/disk"
	"perdure.dev/perdure/internal/store/sqlite"
	"perdure.dev/perdure/internal/workspace"
)

// world is a data directory with a service on it, on real sandboxes.
type world struct {
	t    *testing.T
	dir  string
	db   *sqlite.Store
	svc  *service.Service
	bins sandboxtest.Binaries

	// Set before open, or never:
	step     func(point string)                  // called at the named points of operations
	wrap     func(sandbox.Driver) sandbox.Driver // stands between the service and the process driver
	wrapLog  func(event.Log) event.Log           // stands between the service and the store
	harness  func(agent.Harness) agent.Harness   // stands between the service and the agent
	noImages bool                                // memory images do not stay as files
	machine  func(*sandbox.Capabilities)         // makes another machine of this one, for the gVisor driver
	clock    clock.Clock                         // nil: the machine's
	idle     service.IdleDefaults
	auto     service.AutoDefaults
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	w.begin(t)
	return w
}

// begin makes the directory, and opens the world until the end of the test.
func (w *world) begin(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pd") // short: socket paths are below it
	if err != nil {
		t.Fatal(err)
	}
	w.t, w.dir, w.bins = t, dir, sandboxtest.Build(t)
	w.open()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(w.ctx())
		page := api.Page{Limit: 100}
		list, err := w.svc.ListSessions(ctx, page)
		if err != nil {
			t.Errorf("list at the end: %v", err)
		}
		for _, s := range list.Data {
			if err := w.svc.DeleteSession(ctx, s.ID); err != nil {
				t.Errorf("delete %s at the end: %v", s.Name, err)
			}
		}
		w.close()
		w.noLeaks()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
}

// open starts a service on the data directory, as a daemon does.
func (w *world) open() {
	w.t.Helper()
	var err error
	var clk clock.Clock = clock.System{}
	if w.clock != nil {
		clk = w.clock
	}
	log := slog.New(slog.NewTextHandler(testWriter{w.t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if w.db, err = sqlite.Open(w.t.Context(), sqlite.Options{Dir: w.dir, Clock: clk, Logger: log}); err != nil {
		w.t.Fatal(err)
	}
	dirs := workspace.Dirs{Root: w.dir, Step: w.step}
	if err := dirs.Make(); err != nil {
		w.t.Fatal(err)
	}
	bucket, err := disk.Open(filepath.Join(w.dir, "images"))
	if err != nil {
		w.t.Fatal(err)
	}
	keys, err := disk.OpenKeys(filepath.Join(w.dir, "keys"))
	if err != nil {
		w.t.Fatal(err)
	}
	imageCache := int64(8 << 30)
	if w.noImages {
		imageCache = 0
	}
	images, err := snapshot.New(bucket, keys, 1)
	if err != nil {
		w.t.Fatal(err)
	}
	models := model.Registry{"scripted": scripted.Constructor(clk)}
	var loop agent.Harness = agent.New(agent.Options{Models: models, Clock: clk, Logger: log})
	if w.harness != nil {
		loop = w.harness(loop)
	}
	var events event.Log = w.db
	if w.wrapLog != nil {
		events = w.wrapLog(events)
	}
	var proc sandbox.Driver = process.New(process.Options{Engine: w.bins.Engine, Guest: w.bins.Guest, Log: log})
	if w.wrap != nil {
		proc = w.wrap(proc)
	}
	var isolated sandbox.Driver = gvisor.New(gvisor.Options{Engine: w.bins.Engine, Guest: w.bins.Guest, Cache: filepath.Join(w.dir, "cache"), Log: log})
	if w.machine != nil {
		isolated = elsewhere{isolated, w.machine}
	}
	w.svc = service.New(context.WithoutCancel(w.t.Context()), service.Config{
		Log: events, Rows: w.db, Dirs: dirs, Images: images, ImageStore: w.store(dirs, log), ImageCache: imageCache, Clock: clk, Logger: log, DefaultDriver: gvisor.Name, Idle: w.idle, Auto: w.auto,
		Drivers: map[string]sandbox.Driver{
			gvisor.Name: isolated, process.Name: proc,
		},
		Harness: loop,
		Reachable: func(ctx context.Context, spec event.Spec) error {
			_, err := models.Open(ctx, spec.Model)
			return err
		},
	})
	if err := w.svc.Recover(w.ctx()); err != nil {
		w.t.Fatal(err)
	}
}

// elsewhere is a driver on a machine that says other things of itself.
type elsewhere struct {
	sandbox.Driver
	machine func(*sandbox.Capabilities)
}

func (e elsewhere) Capabilities(ctx context.Context) sandbox.Capabilities {
	c := e.Driver.Capabilities(ctx)
	e.machine(&c)
	return c
}

func (w *world) store(dirs workspace.Dirs, log *slog.Logger) image.Store {
	w.t.Helper()
	s, err := oci.Open(oci.Options{Dirs: dirs, Clock: clock.System{}, Log: log})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// close stops the service, leaving the sandboxes as a daemon leaves them.
func (w *world) close() {
	w.t.Helper()
	w.svc.Stop()
	if err := w.db.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *world) restart() { w.close(); w.open() }

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

const patience = 90 * time.Second

func (w *world) ctx() context.Context {
	return actor.With(context.WithoutCancel(w.t.Context()), actor.Local())
}

func (w *world) timed() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ctx(), patience)
}

func (w *world) create(name, driver string) api.Session {
	w.t.Helper()
	s, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: name, Driver: driver})
	if err != nil {
		w.t.Fatalf("create %s: %v", name, err)
	}
	return s
}

// start starts a command without waiting for it.
func (w *world) start(ref string, req api.StartExec) api.Exec {
	w.t.Helper()
	if req.ID == "" {
		req.ID = string(id.NewExec())
	}
	x, err := w.svc.StartExec(w.ctx(), ref, req)
	if err != nil {
		w.t.Fatalf("start %v in %s: %v", req.Argv, ref, err)
	}
	return x
}

// finish waits for a command and returns its output.
func (w *world) finish(ref, exec string) (api.Exec, string) {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	x, err := w.svc.WaitExec(ctx, ref, id.Exec(exec))
	if err != nil {
		w.t.Fatalf("wait for %s in %s: %v", exec, ref, err)
	}
	r, err := w.svc.ExecOutput(ctx, ref, id.Exec(exec), "stdout", 0, true)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return x, string(out)
}

// sh runs a script and returns what it printed; it must succeed.
func (w *world) sh(ref, script string) string {
	w.t.Helper()
	x, out := w.finish(ref, w.start(ref, api.StartExec{Argv: []string{"bash", "-c", script}}).ID)
	if x.ExitCode == nil || *x.ExitCode != 0 {
		w.t.Fatalf("%q in %s: %+v: %s", script, ref, x, out)
	}
	return strings.TrimSpace(out)
}

// python runs code in the persistent interpreter.
func (w *world) python(ref, code string) string {
	w.t.Helper()
	x, out := w.finish(ref, w.start(ref, api.StartExec{Kind: "python", Code: code}).ID)
	if x.ExitCode == nil || *x.ExitCode != 0 {
		w.t.Fatalf("python %q in %s: %+v: %s", code, ref, x, out)
	}
	return strings.TrimSpace(out)
}

func (w *world) want(got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("got %q, want %q", got, want)
	}
}

func (w *world) state(ref, want string) api.Session {
	w.t.Helper()
	s, err := w.svc.GetSession(w.ctx(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	if s.Workspace.State != want {
		w.t.Fatalf("workspace of %s is %s (%s), want %s", ref, s.Workspace.State, s.Workspace.Cause, want)
	}
	return s
}

// noLeaks checks that no process works in the data directory any more.
func (w *world) noLeaks() {
	w.t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range procs {
		args, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err == nil && p.Name() != "self" && strings.Contains(string(args), w.dir) {
			w.t.Errorf("process %s is still there: %q", p.Name(), args)
		}
	}
	for _, name := range []string{"run", "layers", "checkpoints", "sessions", "images", "keys"} {
		entries, err := os.ReadDir(filepath.Join(w.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Error(err)
		}
		for _, e := range entries {
			w.t.Errorf("%s/%s is still there", name, e.Name())
		}
	}
}

// killSandbox kills the processes of a sandbox, but not its shim.
func (w *world) killSandbox(sid string) {
	w.t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	killed := 0
	for _, p := range procs {
		args, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err != nil || !strings.Contains(string(args), sid) || !strings.HasPrefix(string(args), "runsc") {
			continue
		}
		pid, err := strconv.Atoi(p.Name())
		if err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		w.t.Fatal("there was nothing to kill")
	}
	// Its shim learns of it a moment later.
	ctx, cancel := w.timed()
	defer cancel()
	sb, err := gvisor.New(gvisor.Options{Engine: w.bins.Engine, Guest: w.bins.Guest, Cache: w.t.TempDir()}).Recover(ctx, filepath.Join(w.dir, "run", sid))
	if err != nil {
		w.t.Fatal(err)
	}
	if st, err := sb.Wait(ctx); err != nil || st.State != sandbox.Dead {
		w.t.Fatalf("it is %+v, %v", st, err)
	}
}
