package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
)

const one = "one" // the session that most operations work on

// awake brings a session to running with a new value, and returns it.
func (w *world) awake(ref string) int {
	w.t.Helper()
	if s := w.session(ref); s.Workspace.State != api.WorkspaceRunning {
		must[api.Session](w, "resume")(w.c.ResumeSession(w.ctx(), ref))
	}
	return w.set(ref)
}

// in checks that a workspace is in one of two states, and in the second if the operation was acknowledged.
func (w *world) in(ref, before, after string, told bool) string {
	w.t.Helper()
	s := w.session(ref).Workspace
	if s.State != after && (told || s.State != before) {
		w.t.Fatalf("the workspace of %s is %s (%s); before the operation it was %s, after it %s, acknowledged: %t", ref, s.State, s.Cause, before, after, told)
	}
	return s.State
}

// has checks that mind, desk and transcript of a session all have one of the values, and returns which.
func (w *world) has(ref string, values ...int) int {
	w.t.Helper()
	f := w.look(ref)
	n, err := strconv.Atoi(f.Mind)
	if err != nil || f.Desk != f.Mind || f.said != f.Mind || !slices.Contains(values, n) {
		w.t.Fatalf("S9: %s has %s in mind, %s on the desk, %s on the transcript; it should be one of %v", ref, f.Mind, f.Desk, f.said, values)
	}
	return n
}

// deskOnly checks a session whose processes are gone as they should be.
func (w *world) deskOnly(ref string, n int) {
	w.t.Helper()
	if f := w.look(ref); f.Mind != "none" || f.Desk != strconv.Itoa(n) || f.said != f.Desk {
		w.t.Fatalf("%s has %s in mind, %s on the desk, %s on the transcript; it should have nothing in mind and %d else", ref, f.Mind, f.Desk, f.said, n)
	}
}

// forgetCheckpoints deletes what earlier rounds have made, so that verify has little to read.
func (w *world) forgetCheckpoints(ref string) {
	w.t.Helper()
	s := w.session(ref)
	for _, c := range must[api.List[api.Checkpoint]](w, "checkpoints")(w.c.Checkpoints(w.ctx(), ref, api.Page{Limit: 1000})).Data {
		if c.Kind != "user" || c.ID == s.Workspace.CheckpointID {
			continue
		}
		if err := w.c.DeleteCheckpoint(w.ctx(), c.ID); err != nil {
			w.t.Fatal(err)
		}
	}
}

// message finds a checkpoint by its message.
func (w *world) message(ref, message string) bool {
	w.t.Helper()
	for _, c := range must[api.List[api.Checkpoint]](w, "checkpoints")(w.c.Checkpoints(w.ctx(), ref, api.Page{Limit: 1000})).Data {
		if c.Message == message {
			return true
		}
	}
	return false
}

// transition is an operation that takes a workspace from one state to another and keeps everything.
func transition(before, after string, prepare func(w *world), run func(context.Context, *client.Client) error) op {
	n := 0
	return op{
		ref:     one,
		prepare: func(w *world) { n = w.awake(one); prepare(w) },
		run:     func(ctx context.Context, _ *world, c *client.Client) error { return run(ctx, c) },
		check: func(w *world, told bool) {
			w.in(one, before, after, told)
			w.has(one, n)
		},
	}
}

func nothing(*world) {}

func suspend(w *world) { must[api.Session](w, "suspend")(w.c.SuspendSession(w.ctx(), one)) }

func suspending(ctx context.Context, c *client.Client) error {
	_, err := c.SuspendSession(ctx, one)
	return err
}

func resuming(ctx context.Context, c *client.Client) error {
	_, err := c.ResumeSession(ctx, one)
	return err
}

func pausing(ctx context.Context, c *client.Client) error {
	_, err := c.PauseSession(ctx, one)
	return err
}

func checkpointing() op {
	n := 0
	return op{
		ref:     one,
		prepare: func(w *world) { w.forgetCheckpoints(one); n = w.awake(one) },
		run: func(ctx context.Context, _ *world, c *client.Client) error {
			_, err := c.CreateCheckpoint(ctx, one, api.CreateCheckpoint{Message: fmt.Sprintf("m%d", n)})
			return err
		},
		check: func(w *world, told bool) {
			w.in(one, api.WorkspaceRunning, api.WorkspaceRunning, told)
			w.has(one, n)
			if told && !w.message(one, fmt.Sprintf("m%d", n)) {
				w.t.Error("the checkpoint was acknowledged and is not there")
			}
		},
	}
}

func stopping() op {
	n := 0
	return op{
		ref:     one,
		prepare: func(w *world) { n = w.awake(one) },
		run: func(ctx context.Context, _ *world, c *client.Client) error {
			_, err := c.StopSession(ctx, one)
			return err
		},
		check: func(w *world, told bool) {
			if w.in(one, api.WorkspaceRunning, api.WorkspaceStopped, told) == api.WorkspaceStopped {
				w.deskOnly(one, n)
			} else {
				w.has(one, n)
			}
		},
	}
}

// rollingBack goes back from a value to the one before. asleep: from a suspended workspace. undo: and then forth again, which is what is cut.
func rollingBack(asleep, undo bool) op {
	old, now := 0, 0
	back := func(ctx context.Context, c *client.Client) error {
		_, err := c.RollbackSession(ctx, one, api.RollbackSession{Checkpoint: fmt.Sprintf("m%d", old)})
		return err
	}
	return op{
		ref: one,
		prepare: func(w *world) {
			w.forgetCheckpoints(one)
			old = w.awake(one)
			must[api.Checkpoint](w, "checkpoint")(w.c.CreateCheckpoint(w.ctx(), one, api.CreateCheckpoint{Message: fmt.Sprintf("m%d", old)}))
			now = w.set(one)
			if asleep {
				suspend(w)
			}
			if undo {
				if err := back(w.ctx(), w.c); err != nil {
					w.t.Fatal(err)
				}
				old, now = now, old
			}
		},
		run: func(ctx context.Context, _ *world, c *client.Client) error {
			if !undo {
				return back(ctx, c)
			}
			_, err := c.UndoSession(ctx, one)
			return err
		},
		check: func(w *world, told bool) {
			before := len(w.events(one))
			got := w.has(one, old, now)
			if told && got != old {
				w.t.Errorf("S9: the rollback was acknowledged and has not happened (%d events)", before)
			}
		},
	}
}

func forking(count int) op {
	n, round := 0, 0
	name := ""
	return op{
		ref: one,
		prepare: func(w *world) {
			w.forgetCheckpoints(one)
			n = w.awake(one)
			round++
			name = fmt.Sprintf("fork%d", round)
			must[api.Checkpoint](w, "checkpoint")(w.c.CreateCheckpoint(w.ctx(), one, api.CreateCheckpoint{Message: fmt.Sprintf("m%d", n)}))
		},
		run: func(ctx context.Context, _ *world, c *client.Client) error {
			_, err := c.ForkSession(ctx, one, api.ForkSession{Checkpoint: fmt.Sprintf("m%d", n), Count: count, Name: name})
			return err
		},
		check: func(w *world, told bool) {
			w.in(one, api.WorkspaceRunning, api.WorkspaceRunning, told)
			w.has(one, n)
			all := w.sessions()
			there := 0
			for i := range count {
				child := fmt.Sprintf("%s-%d", name, i+1)
				if s, ok := all[child]; ok {
					there++
					w.in(s.ID, api.WorkspaceRunning, api.WorkspaceRunning, told)
					w.has(child, n)
					if err := w.c.DeleteSession(w.ctx(), child); err != nil {
						w.t.Errorf("rm %s: %v", child, err)
					}
				}
			}
			if there != count && (told || there != 0) {
				w.t.Errorf("%d of %d forks are there, acknowledged: %t", there, count, told)
			}
			told = false
			for _, e := range w.events(one) {
				told = told || e.Type == "session.forked" && e.Seq > w.mark
			}
			if told != (there == count) {
				w.t.Errorf("%d forks are there, and the parent knows of them: %t", there, told)
			}
		},
	}
}

// importing makes a copy of the session beside it.
func importing() op {
	n, round := 0, 0
	name := ""
	var archive []byte
	return op{
		ref: one,
		prepare: func(w *world) {
			w.forgetCheckpoints(one)
			n = w.awake(one)
			round++
			name = fmt.Sprintf("copy%d", round)
			r := must[io.ReadCloser](w, "export")(w.c.ExportSession(w.ctx(), one, api.ExportSession{}))
			archive = must[[]byte](w, "export")(io.ReadAll(r))
		},
		run: func(ctx context.Context, _ *world, c *client.Client) error {
			_, err := c.ImportSession(ctx, api.ImportSession{Name: name}, bytes.NewReader(archive))
			return err
		},
		check: func(w *world, told bool) {
			w.has(one, n)
			if left := w.entries("trash"); len(left) > 0 {
				w.t.Errorf("trash: %v", left)
			}
			if _, ok := w.sessions()[name]; !ok {
				if told {
					w.t.Errorf("%s was imported and is not there", name)
				}
				return
			}
			w.in(name, api.WorkspaceSuspended, api.WorkspaceSuspended, told)
			w.has(name, n)
			if err := w.c.DeleteSession(w.ctx(), name); err != nil {
				w.t.Errorf("rm %s: %v", name, err)
			}
		},
	}
}

func removing() op {
	n, round := 0, 0
	name := ""
	return op{
		ref: one,
		prepare: func(w *world) {
			round++
			name = fmt.Sprintf("gone%d", round)
			w.create(name)
			n = w.set(name)
		},
		run: func(ctx context.Context, _ *world, c *client.Client) error { return c.DeleteSession(ctx, name) },
		check: func(w *world, told bool) {
			if _, ok := w.sessions()[name]; !ok {
				return
			}
			if told {
				w.t.Errorf("L1: %s was removed and is there", name)
			}
			w.has(name, n)
			if err := w.c.DeleteSession(w.ctx(), name); err != nil {
				w.t.Errorf("rm %s: %v", name, err)
			}
		},
	}
}

func creating() op {
	round := 0
	name := ""
	return op{
		ref:     one,
		prepare: func(*world) { round++; name = fmt.Sprintf("new%d", round) },
		run: func(ctx context.Context, _ *world, c *client.Client) error {
			_, err := c.CreateSession(ctx, api.CreateSession{Name: name})
			return err
		},
		check: func(w *world, told bool) {
			if _, ok := w.sessions()[name]; !ok {
				if told {
					w.t.Errorf("%s was created and is not there", name)
				}
				w.create(name)
			}
			w.has(name, w.set(name))
			if err := w.c.DeleteSession(w.ctx(), name); err != nil {
				w.t.Errorf("rm %s: %v", name, err)
			}
		},
	}
}

// running starts a command; the client then asks again with the same id, as it does after a broken connection.
func running() op {
	var id, code string
	start := func(ctx context.Context, c *client.Client) (api.Exec, error) {
		return c.StartExec(ctx, one, api.StartExec{ID: id, Argv: []string{"bash", "-c", code}, Output: true})
	}
	return op{
		ref: one,
		prepare: func(w *world) {
			w.awake(one)
			w.runs++
			id = fmt.Sprintf("cmd-%d", w.runs)
			code = fmt.Sprintf("echo %s >> /root/ran; echo said %s", id, id)
		},
		run: func(ctx context.Context, _ *world, c *client.Client) error { _, err := start(ctx, c); return err },
		check: func(w *world, _ bool) {
			x, err := start(w.ctx(), w.c)
			if err != nil || x.ExitCode == nil || *x.ExitCode != 0 || x.Stdout != "said "+id+"\n" {
				w.t.Errorf("H4: asked again, %s is %+v, %v", id, x, err)
			}
			if f := w.look(one); !slices.Contains(f.Ran, id) {
				w.t.Errorf("H4: %s did not run", id)
			}
		},
	}
}

// TestH1_DaemonKilledAtEveryStep walks through the operations on a session.
func TestH1_DaemonKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	met := map[string]bool{}
	walk(w, met, "checkpoint", checkpointing())
	walk(w, met, "suspend", transition(api.WorkspaceRunning, api.WorkspaceSuspended, nothing, suspending))
	walk(w, met, "resume", transition(api.WorkspaceSuspended, api.WorkspaceRunning, suspend, resuming))
	walk(w, met, "pause", transition(api.WorkspaceRunning, api.WorkspacePaused, nothing, pausing))
	walk(w, met, "unpause", transition(api.WorkspacePaused, api.WorkspaceRunning,
		func(w *world) { must[api.Session](w, "pause")(w.c.PauseSession(w.ctx(), one)) }, resuming))
	walk(w, met, "stop", stopping())
	walk(w, met, "rollback", rollingBack(false, false))
	walk(w, met, "rollback asleep", rollingBack(true, false))
	walk(w, met, "undo", rollingBack(false, true))
	walk(w, met, "fork", forking(2))
	walk(w, met, "rm", removing())
	walk(w, met, "create", creating())
	walk(w, met, "exec", running())
	walk(w, met, "resume lost", resumingLost())
}

// TestKilledImportLeavesNothing: a daemon that dies while it takes in an archive has the whole session afterwards, or nothing of it.
func TestKilledImportLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	walk(w, map[string]bool{}, "import", importing())
}

// resumingLost wakes a session whose sandbox was killed.
func resumingLost() op {
	n := 0
	return op{
		ref: one,
		prepare: func(w *world) {
			n = w.awake(one)
			w.shoot(w.session(one).Workspace.SandboxID, shim)
			must[api.Session](w, "wait")(w.c.WaitSession(w.ctx(), one, []string{api.WorkspaceLost}, patience))
		},
		run: func(ctx context.Context, _ *world, c *client.Client) error { return resuming(ctx, c) },
		check: func(w *world, told bool) {
			w.in(one, api.WorkspaceLost, api.WorkspaceRunning, told)
			w.deskOnly(one, n)
		},
	}
}
