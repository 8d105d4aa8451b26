package sandboxtest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// patience bounds everything that should be quick, on a slow and busy machine.
const patience = 60 * time.Second

// bench is one session's directories, and the driver under test.
type bench struct {
	t      testing.TB
	driver sandbox.Driver
	caps   sandbox.Capabilities
	dir    string
	spec   sandbox.Spec // of the sandbox started last
}

func newBench(t testing.TB, driver sandbox.Driver) *bench {
	t.Helper()
	b := &bench{t: t, driver: driver, caps: driver.Capabilities(t.Context()), dir: t.TempDir()}
	if !b.caps.Available {
		t.Skipf("capability Available: %s cannot run here: %v", driver.Name(), b.caps.Missing)
	}
	b.spec = sandbox.Spec{
		Session: id.NewSession(), SpoolDir: b.mkdir("spool"), Hostname: "workshop", Network: sandbox.NetworkGateway,
		Root: sandbox.Root{Image: "host"},
		Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"},
	}
	b.spec = b.next()
	return b
}

func (b *bench) mkdir(name string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// next is the spec of a new sandbox of the same session, with fresh directories.
func (b *bench) next() sandbox.Spec {
	spec := b.spec
	spec.ID = id.NewSandbox()
	spec.StateDir = b.mkdir("state/" + string(spec.ID))
	spec.Root.Upper = b.mkdir("upper/" + string(spec.ID))
	spec.Root.Work = b.mkdir("work/" + string(spec.ID))
	return spec
}

// fork is next for another session: own spool, own name.
func (b *bench) fork(name string) sandbox.Spec {
	spec := b.next()
	spec.Session = id.NewSession()
	spec.SpoolDir = b.mkdir("spool-" + name)
	spec.Hostname = name
	return spec
}

// keep ends a sandbox with the test, and has its leftovers looked for.
func (b *bench) keep(s sandbox.Sandbox, spec sandbox.Spec) sandbox.Sandbox {
	b.t.Helper()
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), patience)
		defer cancel()
		if err := s.Destroy(ctx); err != nil {
			b.t.Errorf("destroy: %v", err)
		}
		noTrace(b.t, spec)
		if b.t.Failed() {
			if log, err := os.ReadFile(filepath.Join(spec.StateDir, "shim.log")); err == nil {
				b.t.Logf("shim.log:\n%s", log)
			}
		}
	})
	return s
}

func (b *bench) start() sandbox.Sandbox {
	b.t.Helper()
	return b.startSpec(b.spec)
}

func (b *bench) startSpec(spec sandbox.Spec) sandbox.Sandbox {
	b.t.Helper()
	s, err := b.driver.Start(b.ctx(), spec)
	if err != nil {
		b.t.Fatalf("start: %v", err)
	}
	return b.keep(s, spec)
}

func (b *bench) restore(spec sandbox.Spec, image sandbox.Image) sandbox.Sandbox {
	b.t.Helper()
	s, err := b.driver.Restore(b.ctx(), spec, image)
	if err != nil {
		b.t.Fatalf("restore: %v", err)
	}
	return b.keep(s, spec)
}

// ctx bounds one call.
func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// checkpoint takes a checkpoint and returns it with the layers that its files are in, for the Root of a sandbox restored from it.
func (b *bench) checkpoint(s sandbox.Sandbox, spec sandbox.Spec, leavePaused bool) (sandbox.Warm, []string) {
	b.t.Helper()
	ckpt := id.NewCheckpoint()
	layer := filepath.Join(b.mkdir("layers"), string(ckpt))
	warm, err := s.Checkpoint(b.ctx(), sandbox.CheckpointRequest{
		Dir: b.mkdir("images/" + string(ckpt)),
		Cut: func(ctx context.Context) error {
			return exec.CommandContext(ctx, "cp", "-a", spec.Root.Upper, layer).Run()
		},
		LeavePaused: leavePaused,
	})
	if err != nil {
		b.t.Fatalf("checkpoint: %v", err)
	}
	return warm, append([]string{layer}, spec.Root.Layers...)
}

func (b *bench) need(has bool, capability string) {
	b.t.Helper()
	if !has {
		b.t.Skipf("capability %s: the driver does not claim it: %v", capability, b.caps.Missing)
	}
}

// result is a command that has ended.
type result struct {
	sandbox.ExecStatus
	out, err string
}

// run runs a shell command to its end.
func (b *bench) run(s sandbox.Sandbox, script string) result {
	b.t.Helper()
	return b.wait(s, b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: []string{"/bin/bash", "-c", script}}))
}

// ok is run for what must succeed; it returns the output without the last newline.
func (b *bench) ok(s sandbox.Sandbox, script string) string {
	b.t.Helper()
	r := b.run(s, script)
	if r.ExitCode == nil || *r.ExitCode != 0 {
		b.t.Fatalf("%s: state %s, code %v, cause %q\n%s%s", script, r.State, code(r.ExecStatus), r.Cause, r.out, r.err)
	}
	return strings.TrimSuffix(r.out, "\n")
}

func (b *bench) begin(s sandbox.Sandbox, spec sandbox.ExecSpec) id.Exec {
	b.t.Helper()
	if spec.ID == "" {
		spec.ID = id.NewExec()
	}
	if _, err := s.Execs().Start(b.ctx(), spec); err != nil {
		b.t.Fatalf("start %v: %v", spec.Argv, err)
	}
	return spec.ID
}

func (b *bench) wait(s sandbox.Sandbox, exec id.Exec) result {
	b.t.Helper()
	st, err := s.Execs().Wait(b.ctx(), exec)
	if err != nil {
		b.t.Fatalf("wait for %s: %v", exec, err)
	}
	return result{st, b.output(s, exec, sandbox.Stdout), b.output(s, exec, sandbox.Stderr)}
}

func (b *bench) output(s sandbox.Sandbox, exec id.Exec, stream sandbox.Stream) string {
	b.t.Helper()
	out, err := s.Execs().Output(b.ctx(), exec, stream, 0, false)
	if err != nil {
		b.t.Fatalf("output: %v", err)
	}
	defer out.Close()
	data, err := io.ReadAll(out)
	if err != nil {
		b.t.Fatalf("output: %v", err)
	}
	return string(data)
}

// until polls a condition that nothing signals.
func (b *bench) until(what string, done func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			b.t.Fatalf("gave up waiting until %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *bench) state(s sandbox.Sandbox) sandbox.Status {
	b.t.Helper()
	st, err := s.Status(b.ctx())
	if err != nil {
		b.t.Fatalf("status: %v", err)
	}
	return st
}

func code(st sandbox.ExecStatus) any {
	if st.ExitCode == nil {
		return nil
	}
	return *st.ExitCode
}
