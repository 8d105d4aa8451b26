package link_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"perdure.dev/perdure/internal/guest/link"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// guestBinary is the real guest, built once; TestMain sets it.
var guestBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "perdure-guest-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	guestBinary = filepath.Join(dir, "perdure-guest")
	build := exec.Command("go", "build", "-o", guestBinary, "perdure.dev/perdure/cmd/perdure-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the guest: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// rig is a real guest, as a subreaping child of the test, and a real link.
type rig struct {
	t      testing.TB
	dir    string
	socket string // of the link
	spool  *spool.Spool
	link   *link.Link
	guest  *exec.Cmd
	user   string // whom commands run as; "": the test's own user
	work   string // where they start; "": the guest's home
}

// reopen opens the link again, with what has changed.
func (r *rig) reopen() {
	r.t.Helper()
	r.openLink(spool.Options{}, "PATH=/usr/bin:/bin") // which everybody may use
}

func newRig(t testing.TB, env ...string) *rig {
	t.Helper()
	r := newRigWithoutGuest(t, env...)
	r.startGuest(r.socket)
	return r
}

func newRigWithoutGuest(t testing.TB, env ...string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "prdr") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	r.openLink(spool.Options{}, env...)
	return r
}

func (r *rig) openLink(opts spool.Options, env ...string) {
	r.t.Helper()
	s, err := spool.Open(filepath.Join(r.dir, "spool"), opts)
	if err != nil {
		r.t.Fatal(err)
	}
	var log *slog.Logger
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	l, err := link.Open(r.t.Context(), link.Config{Socket: r.socket, User: r.user, Dir: r.work, Spool: s, Env: append([]string{"PATH=" + os.Getenv("PATH")}, env...), Log: log})
	if err != nil {
		r.t.Fatal(err)
	}
	r.spool, r.link = s, l
	r.t.Cleanup(func() { l.Close(); s.Close() })
}

func (r *rig) startGuest(socket string) {
	r.t.Helper()
	home := filepath.Join(r.dir, "home")
	r.guest = exec.Command(guestBinary, "--socket", socket, "--run-dir", filepath.Join(r.dir, "run"), "--home", home, "--hooks", filepath.Join(r.dir, "hooks"), "--subreaper")
	r.guest.Stderr = os.Stderr
	r.guest.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that panics leaves no guest
	if err := r.guest.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.killGuest() })
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	if err := r.link.Connected(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// killGuest ends the guest and whatever it has started.
func (r *rig) killGuest() {
	if r.guest.ProcessState != nil {
		return
	}
	for range 100 {
		r.guest.Process.Signal(stopSignal) // so that it starts nothing while its children are killed
		kids := descendants(r.guest.Process.Pid)
		for _, pid := range kids {
			kill(pid)
		}
		if len(kids) == 0 {
			break
		}
	}
	r.guest.Process.Kill()
	r.guest.Wait()
}

func (r *rig) ctx() context.Context { return r.t.Context() }

func (r *rig) start(spec sandbox.ExecSpec) id.Exec {
	r.t.Helper()
	if spec.ID == "" {
		spec.ID = id.NewExec()
	}
	if _, err := r.link.Execs().Start(r.ctx(), spec); err != nil {
		r.t.Fatalf("start %v %q: %v", spec.Argv, spec.Code, err)
	}
	return spec.ID
}

func (r *rig) wait(exec id.Exec) sandbox.ExecStatus {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx(), 30*time.Second)
	defer cancel()
	st, err := r.link.Execs().Wait(ctx, exec)
	if err != nil {
		r.t.Fatalf("wait %s: %v", exec, err)
	}
	return st
}

func (r *rig) output(exec id.Exec, stream sandbox.Stream) string {
	r.t.Helper()
	rd, err := r.link.Execs().Output(r.ctx(), exec, stream, 0, false)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rd.Close()
	data, err := io.ReadAll(rd)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// run runs a command to its end.
func (r *rig) run(spec sandbox.ExecSpec) (st sandbox.ExecStatus, stdout, stderr string) {
	r.t.Helper()
	exec := r.start(spec)
	st = r.wait(exec)
	return st, r.output(exec, sandbox.Stdout), r.output(exec, sandbox.Stderr)
}

func process(argv ...string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: argv}
}

func shell(code string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Kind: sandbox.ExecShell, Code: code}
}

func python(code string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Kind: sandbox.ExecPython, Code: code}
}

func code(st sandbox.ExecStatus) int {
	if st.ExitCode == nil {
		return -1
	}
	return *st.ExitCode
}

// eventually polls a condition of the outside world that gives no signal.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
