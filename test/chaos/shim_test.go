package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
)

// part is a process of a sandbox.
type part string

const (
	shim   part = "shim"   // perdure-engine shim
	kernel part = "kernel" // the sandbox itself
)

// shoot kills a part of a session's sandbox, and reports whether it was there.
func (w *world) shoot(sandboxID string, p part) bool {
	w.t.Helper()
	hit := false
	for _, pid := range w.pids(sandboxID, p) {
		hit = syscall.Kill(pid, syscall.SIGKILL) == nil || hit
	}
	return hit
}

// pids are the processes that a part of a sandbox is.
func (w *world) pids(sandboxID string, p part) (pids []int) {
	w.t.Helper()
	for pid, sb := range w.processes() {
		if sb != sandboxID {
			continue
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // gone meanwhile
		}
		isShim := bytes.Contains(args, []byte("perdure-engine\x00shim"))
		isKernel := bytes.Contains(args, []byte("\x00boot\x00"))
		if p == shim && isShim || p == kernel && isKernel {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestX3_S3_SandboxKilled kills each part of a sandbox while a command runs: the session is lost with a cause, the command has
// no exit code, and a resume brings the files and says what is gone.
func TestX3_S3_SandboxKilled(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	for _, p := range []part{shim, kernel} {
		t.Run(string(p), func(t *testing.T) {
			w.t = t
			n := w.awake(one)
			id := "sleep-" + string(p)
			must[api.Exec](w, "start")(w.c.StartExec(w.ctx(), one, api.StartExec{ID: id, Argv: []string{"sleep", "1000"}}))
			if !w.shoot(w.session(one).Workspace.SandboxID, p) {
				t.Fatalf("there is no %s", p)
			}
			s := must[api.Session](w, "wait")(w.c.WaitSession(w.ctx(), one, []string{api.WorkspaceLost}, patience))
			if s.Workspace.Cause == "" {
				t.Error("S3: lost without a cause")
			}
			x := must[api.Exec](w, "wait for the command")(w.c.WaitExec(w.ctx(), one, id))
			if x.State != api.ExecLost || x.ExitCode != nil || x.Cause == "" {
				t.Errorf("X3: the command is %+v", x)
			}
			s = must[api.Session](w, "resume")(w.c.ResumeSession(w.ctx(), one))
			if s.ResumeReport == nil || len(s.ResumeReport.Lost) == 0 {
				t.Errorf("the resume does not say what is lost: %+v", s.ResumeReport)
			}
			w.deskOnly(one, n)
			w.answered(one)
			w.intact()
		})
	}
	w.t = t
}

// TestS4_SandboxKilledWhileTheDaemonIsDown has nobody watch while the sandbox dies.
func TestS4_SandboxKilledWhileTheDaemonIsDown(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	n := w.awake(one)
	s := w.session(one)
	w.kill()
	if !w.shoot(s.Workspace.SandboxID, shim) {
		t.Fatal("there is no shim")
	}
	w.up()
	if s := w.session(one).Workspace; s.State != api.WorkspaceLost || s.Cause == "" {
		t.Fatalf("S3: %+v", s)
	}
	w.intact()
	w.deskOnly(one, n)
}

// shot is an operation in whose middle a sandbox is killed.
type shot struct {
	name string
	run  func(ctx context.Context, w *world, c *client.Client) error
}

// TestS4_SandboxKilledDuring kills a part of the sandbox at a random moment of an operation. The operation may succeed or fail; the
// session then has everything, or is lost with its files, and says so.
func TestS4_SandboxKilledDuring(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	rng := rand.New(rand.NewPCG(1, 2)) // the same moments each time, as far as the machine allows
	shots := []shot{
		{"checkpoint", func(ctx context.Context, w *world, c *client.Client) error {
			_, err := c.CreateCheckpoint(ctx, one, api.CreateCheckpoint{Message: "shot"})
			return err
		}},
		{"suspend", func(ctx context.Context, _ *world, c *client.Client) error { return suspending(ctx, c) }},
		{"restore", func(ctx context.Context, _ *world, c *client.Client) error { return resuming(ctx, c) }},
	}
	rounds := 1
	if full() {
		rounds = 15
	}
	for _, s := range shots {
		for i := range rounds {
			for _, p := range []part{shim, kernel} {
				t.Run(fmt.Sprintf("%s/%s%d", s.name, p, i), func(t *testing.T) {
					w.t = t
					w.shootDuring(s, p, time.Duration(rng.IntN(400))*time.Millisecond)
				})
			}
		}
	}
	w.t = t
}

func (w *world) shootDuring(s shot, p part, after time.Duration) {
	w.t.Helper()
	n := w.awake(one)
	w.quiet()
	w.forgetCheckpoints(one)
	if s.name == "restore" {
		suspend(w)
		w.quiet()
	}
	known := w.entries("run")
	done := make(chan error, 1)
	ctx := w.ctx()
	go func() { done <- s.run(ctx, w, w.once) }() // answers into done, which has room
	time.Sleep(after)                             // the moment is the test's subject
	target := w.session(one).Workspace.SandboxID
	for _, e := range w.entries("run") {
		if s.name == "restore" && !slices.Contains(known, e) {
			target = e
		}
	}
	hit := w.shoot(target, p)
	err := <-done
	w.t.Logf("after %v: hit %t, %v", after, hit, err)
	within(w.t, deathIn, "the session has come to rest", func() error {
		s := w.session(one).Workspace
		if !hit || s.State != api.WorkspaceRunning || s.SandboxID != target {
			return nil
		}
		if len(w.pids(target, p)) > 0 { // what was killed was a spare, and another sandbox was made in its place
			return nil
		}
		return fmt.Errorf("S3: it is %s, and its sandbox was killed", s.State)
	})
	now := w.session(one).Workspace
	if now.State == api.WorkspaceLost && now.Cause == "" {
		w.t.Error("S3: lost without a cause")
	}
	w.quiet()
	w.intact()
	f := w.look(one)
	want := strconv.Itoa(n)
	switch {
	case f.Desk != want || f.said != want:
		w.t.Errorf("S4: %s on the desk, %s on the transcript, want %d", f.Desk, f.said, n)
	case f.Mind != want && (now.State != api.WorkspaceLost || f.Mind != "none"):
		w.t.Errorf("S4: %s in mind after %s, want %d", f.Mind, now.State, n)
	}
	w.answered(one)
}

// TestL1_DaemonKilledWhileASandboxBoots leaves a sandbox in the making that nobody waits for: the next daemon must neither wait for it nor
// leave it. In a rollback the old sandbox stands still meanwhile, and must go on.
func TestL1_DaemonKilledWhileASandboxBoots(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	moments := []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond}
	if !full() {
		moments = moments[1:2]
	}
	for i, after := range moments {
		for name, o := range map[string]op{"create": creating(), "rollback": rollingBack(false, false), "resume": transition(
			api.WorkspaceSuspended, api.WorkspaceRunning, suspend, resuming)} {
			t.Run(fmt.Sprintf("%s%d", name, i), func(t *testing.T) {
				w.t = t
				o.prepare(w)
				w.quiet()
				known := w.entries("run")
				done := make(chan error, 1)
				ctx := w.ctx()
				go func() { done <- o.run(ctx, w, w.once) }() // answers into done, which has room
				until(t, "a sandbox is being made", func() error {
					for _, e := range w.entries("run") {
						if _, err := os.Stat(filepath.Join(w.data(), "run", e, "lock")); err == nil && !slices.Contains(known, e) {
							return nil
						}
					}
					return errors.New("there is none")
				})
				time.Sleep(after) // the moment is the test's subject
				w.kill()
				told := <-done == nil
				w.up()
				w.intact()
				o.check(w, told)
				w.answered(one)
			})
		}
	}
	w.t = t
}
