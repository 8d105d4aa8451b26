package service_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/clock/clocktest"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox/process"
	"perdure.dev/perdure/internal/service"
)

const (
	pauses   = 2 * time.Minute
	suspends = 30 * time.Minute
)

// newIdleWorld is a world whose clock can be put forward, in which sessions fall asleep.
func newIdleWorld(t *testing.T) (*world, *clocktest.Clock) {
	t.Helper()
	clk := clocktest.New()
	w := &world{clock: clk, idle: service.IdleDefaults{Pause: pauses, Suspend: suspends}}
	w.begin(t)
	return w, clk
}

// sleepy makes a session on the process driver that is paused and suspended like those that keep memory.
func (w *world) sleepy(name string, change ...func(*api.CreateSession)) api.Session {
	w.t.Helper()
	req := api.CreateSession{Name: name, Driver: process.Name, Idle: api.Idle{PauseAfterMS: pauses.Milliseconds(), SuspendAfterMS: suspends.Milliseconds()}}
	for _, f := range change {
		f(&req)
	}
	s, err := w.svc.CreateSession(w.ctx(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// script is a model that follows a script.
func (w *world) script(name, text string) string {
	w.t.Helper()
	file := filepath.Join(w.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return "scripted:" + file
}

// sources names what keeps a session awake.
func (w *world) sources(ref string) string {
	w.t.Helper()
	var out []string
	for _, r := range w.get(ref).Workspace.IdleReasons {
		out = append(out, r.Source)
	}
	return strings.Join(out, " ")
}

// why is the reason of the last event of a type, and who signed it.
func (w *world) why(ref string, what event.Type) (reason, actor string) {
	w.t.Helper()
	list, err := w.svc.ListEvents(w.ctx(), ref, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Data {
		if e.Type == string(what) {
			var d struct{ Reason string }
			if err := json.Unmarshal(e.Data, &d); err != nil {
				w.t.Fatal(err)
			}
			reason, actor = d.Reason, e.ActorID
		}
	}
	return reason, actor
}

// pass puts the clock forward until a session that nobody uses has been put to sleep, which is when the others have been looked at.
func (w *world) pass(clk *clocktest.Clock, d time.Duration) {
	w.t.Helper()
	name := "control-" + strings.ToLower(string(id.NewSession()))[20:]
	w.sleepy(name, func(r *api.CreateSession) {
		r.Idle = api.Idle{PauseAfterMS: -1, SuspendAfterMS: d.Milliseconds()}
	})
	clk.Forward(d)
	w.wait(name, "suspended")
	if err := w.svc.DeleteSession(w.ctx(), name); err != nil {
		w.t.Fatal(err)
	}
}

// fallAsleep puts the clock forward until a session is in a state. The end of what was done last may be told of only after that, so that it
// counts from there.
func (w *world) fallAsleep(clk *clocktest.Clock, ref string, d time.Duration, state string) {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	for {
		clk.Forward(d)
		try, end := context.WithTimeout(ctx, 3*time.Second)
		_, err := w.svc.WaitSession(try, ref, []string{state})
		end()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatalf("%v; it is %+v", err, w.get(ref).Workspace)
		}
	}
}

// TestI1_WhoIsAtWorkIsNotIdle keeps sessions busy in every way there is, with nobody asking for anything.
func TestI1_WhoIsAtWorkIsNotIdle(t *testing.T) {
	w, clk := newIdleWorld(t)
	thinks := func(r *api.CreateSession) {
		r.Model, r.Goal = w.script("thinks", "turns:\n  - delay: 100h\n    text: done\n"), "think"
		r.Limits.TurnTimeMS = (1000 * time.Hour).Milliseconds()
	}
	calls := func(r *api.CreateSession) {
		r.Model, r.Goal = w.script("calls", strings.ReplaceAll(slowScript, "/root/", w.dir+"/")), "work"
		r.Limits.TurnTimeMS = (1000 * time.Hour).Milliseconds()
	}
	w.sleepy("thinks", thinks)
	w.sleepy("calls", calls)
	w.sleepy("waits")
	w.start("waits", api.StartExec{ID: "waits", Argv: []string{"sleep", "1000000"}})
	w.sleepy("types")
	w.start("types", api.StartExec{ID: "terminal", Argv: []string{"bash", "--norc"}, TTY: &api.TerminalSize{Rows: 24, Cols: 80}, Stdin: true})
	leave, err := w.svc.AttachExec(w.ctx(), "types", "terminal")
	if err != nil {
		t.Fatal(err)
	}
	w.sleepy("sends")
	in, out := io.Pipe()
	sent := make(chan error, 1)
	go func() { sent <- w.svc.WriteFile(w.ctx(), "sends", "~/big", 0o644, in) }()
	if _, err := out.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	w.untilEvent("thinks", event.ModelRequested)
	w.untilEvent("calls", event.ToolStarted)
	busy := map[string]string{"thinks": "model turn", "calls": "tool turn", "waits": "command", "types": "terminal", "sends": "files"}
	check := func() {
		t.Helper()
		for name, source := range busy {
			w.state(name, "running")
			w.want(w.sources(name), source)
		}
	}
	check()
	w.pass(clk, pauses)
	check()
	w.pass(clk, suspends)
	check()
	w.sleepy("computes", func(r *api.CreateSession) {
		r.Idle = api.Idle{PauseAfterMS: 3000, SuspendAfterMS: -1} // of real time, from here on: no program computes through a jump of the clock
	})
	w.start("computes", api.StartExec{ID: "computes", Background: true, Argv: []string{"sh", "-c", "while :; do :; done"}})
	ctx, cancel := w.timed()
	defer cancel()
	for w.sources("computes") != "cpu" {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("a busy loop is not seen: %+v", w.get("computes").Workspace)
		}
	}
	since := w.get("computes").Workspace.IdleReasons[0].Since
	if age := clk.Now().Sub(since); age < 0 || age > 2*time.Hour {
		t.Errorf("it computes since %v", since)
	}
	// Each ends its work, and falls asleep.
	w.want(w.sources("computes"), "cpu")
	if err := w.svc.SignalExec(w.ctx(), "computes", "computes", 9); err != nil {
		t.Fatal(err)
	}
	if err := w.svc.SignalExec(w.ctx(), "waits", "waits", 9); err != nil {
		t.Fatal(err)
	}
	leave()
	out.Close()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.CancelSession(w.ctx(), "thinks", api.CancelSession{}); err != nil {
		t.Fatal(err)
	}
	w.wait("thinks", "done")
	w.wait("calls", "done")
	w.finish("waits", "waits")
	w.wait("computes", "paused") // within its seconds
	for name := range busy {
		w.fallAsleep(clk, name, pauses, "paused")
	}
	for name := range busy {
		w.fallAsleep(clk, name, suspends, "suspended")
		reason, actor := w.why(name, event.WorkspaceSuspended)
		w.want(reason, "idle for 30m")
		w.want(actor, "perdure")
		reason, actor = w.why(name, event.WorkspacePaused)
		w.want(reason, "idle for 2m")
		w.want(actor, "perdure")
	}
}

// TestI2_PollingKeepsNothingAwake looks at a session all the time, in every way that only looks.
func TestI2_PollingKeepsNothingAwake(t *testing.T) {
	w, clk := newIdleWorld(t)
	w.sleepy("a")
	w.sh("a", "echo said")
	w.finish("a", w.start("a", api.StartExec{ID: "said", Argv: []string{"echo", "said"}}).ID)
	w.start("a", api.StartExec{ID: "server", Background: true, Argv: []string{"sleep", "1000000"}})
	ctx, cancel := context.WithCancel(w.ctx())
	var polls sync.WaitGroup
	items, err := w.svc.Subscribe(ctx, "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	polls.Go(func() {
		for range items {
		}
	})
	log, err := w.svc.ExecOutput(ctx, "a", "server", "stdout", 0, true)
	if err != nil {
		t.Fatal(err)
	}
	polls.Go(func() { io.Copy(io.Discard, log); log.Close() })
	polls.Go(func() {
		for ctx.Err() == nil {
			w.svc.GetSession(ctx, "a")
			w.svc.ListSessions(ctx, api.Page{Limit: 10})
			w.svc.ListEvents(ctx, "a", 0, 100)
			w.svc.ListExecs(ctx, "a", api.Page{})
			w.svc.GetExec(ctx, "a", "said")
			w.svc.ListCheckpoints(ctx, "a", api.Page{})
		}
	})
	clk.Forward(pauses)
	w.wait("a", "paused")
	procs, err := w.svc.Processes(ctx, "a")
	if err != nil || len(procs.Data) == 0 {
		t.Errorf("a paused workspace has the processes %+v, %v", procs, err)
	}
	w.state("a", "paused")
	clk.Forward(suspends)
	w.wait("a", "suspended")
	cancel()
	polls.Wait()
}

// TestI3_PausedTimeUsesUpNoLease lets a session sleep for much longer than it may be awake. Being looked at changes nothing in its policy.
func TestI3_PausedTimeUsesUpNoLease(t *testing.T) {
	w, clk := newIdleWorld(t)
	before := w.sleepy("a", func(r *api.CreateSession) { r.Idle.ExpireAfterMS = time.Hour.Milliseconds() })
	clk.Forward(pauses)
	w.wait("a", "paused")
	clk.Forward(10 * time.Minute)
	w.sh("a", "true") // it wakes from the pause
	clk.Forward(pauses)
	w.wait("a", "paused")
	clk.Forward(suspends)
	w.wait("a", "suspended")
	clk.Forward(1000 * time.Hour)
	w.sh("a", "true")
	s := w.state("a", "running")
	if s.AwakeMS > (20 * time.Minute).Milliseconds() {
		t.Errorf("it has been awake for %s", time.Duration(s.AwakeMS)*time.Millisecond)
	}
	if s.Idle != before.Idle {
		t.Errorf("its policy is %+v, was %+v", s.Idle, before.Idle)
	}
}

// TestAnyAccessWakes reaches into a session in every way, from a pause and from a suspend.
func TestAnyAccessWakes(t *testing.T) {
	w, clk := newIdleWorld(t)
	model := func(r *api.CreateSession) {
		r.Model = w.script("agent", "turns:\n  - text: okay\n")
	}
	w.sleepy("a", model)
	w.sh("a", "echo kept > ~/kept")
	w.start("a", api.StartExec{ID: "cat", Argv: []string{"cat"}, Stdin: true, Background: true})
	ctx := w.ctx()
	var packed bytes.Buffer
	tarOf(t, &packed, "unpacked", "content")
	for _, c := range []struct {
		name      string
		reach     func() error
		fromPause bool // only: after a suspend nothing is there to reach
		sleeps    bool // it may stay asleep
	}{
		{name: "input", fromPause: true, reach: func() error { return w.svc.WriteStdin(ctx, "a", "cat", 0, []byte("x"), false) }},
		{name: "signal", fromPause: true, reach: func() error { return w.svc.SignalExec(ctx, "a", "cat", 18) }},
		{name: "exec", reach: func() error { w.want(w.sh("a", "cat ~/kept"), "kept"); return nil }},
		{name: "run", reach: func() error {
			x, err := w.svc.RunExec(ctx, "a", api.StartExec{ID: string(id.NewExec()), Argv: []string{"sh", "-c", "cat ~/kept"}}, 100)
			if err == nil {
				w.want(x.Stdout, "kept\n")
			}
			return err
		}},
		{name: "shell", reach: func() error {
			x := w.start("a", api.StartExec{Argv: []string{"cat", "kept"}, TTY: &api.TerminalSize{Rows: 24, Cols: 80}})
			_, out := w.finish("a", x.ID)
			w.want(strings.TrimSpace(out), "kept")
			return nil
		}},
		{name: "read", reach: func() error {
			r, _, err := w.svc.ReadFile(ctx, "a", "~/kept", 0, -1)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(io.Discard, r)
			return err
		}},
		{name: "write", reach: func() error { return w.svc.WriteFile(ctx, "a", "~/new", 0o644, strings.NewReader("new")) }},
		{name: "list", reach: func() error { _, err := w.svc.ListFiles(ctx, "a", "~"); return err }},
		{name: "stat", reach: func() error { _, err := w.svc.StatFile(ctx, "a", "~/kept"); return err }},
		{name: "mkdir", reach: func() error { return w.svc.Mkdir(ctx, "a", "~/dir", 0o755) }},
		{name: "remove", reach: func() error { return w.svc.RemoveFile(ctx, "a", "~/dir", true) }},
		{name: "unpack", reach: func() error { return w.svc.Unpack(ctx, "a", "~", bytes.NewReader(packed.Bytes())) }},
		{name: "resume", reach: func() error { _, err := w.svc.ResumeSession(ctx, "a"); return err }},
		{name: "message", sleeps: true, reach: func() error {
			_, err := w.svc.SendMessages(ctx, "a", api.SendMessages{Messages: []api.Message{{Text: "hello"}}})
			if err == nil {
				w.wait("a", "answered")
			}
			return err
		}},
	} {
		for _, from := range []string{"paused", "suspended"} {
			if c.fromPause && from == "suspended" {
				continue // the process driver keeps no processes
			}
			w.fallAsleep(clk, "a", pauses, "paused")
			if from == "suspended" {
				w.fallAsleep(clk, "a", suspends, "suspended")
			}
			if err := c.reach(); err != nil {
				t.Fatalf("%s of what is %s: %v", c.name, from, err)
			}
			if c.sleeps {
				w.sh("a", "true")
			}
			w.state("a", "running")
		}
	}
}

// TestAccessWhileItFallsAsleep works in a session that falls asleep at every opportunity. Whoever comes waits and wakes it; nobody is refused.
func TestAccessWhileItFallsAsleep(t *testing.T) {
	w, clk := newIdleWorld(t)
	w.sleepy("a")
	stop := make(chan struct{})
	var clocks sync.WaitGroup
	clocks.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				clk.Forward(suspends / 4)
			}
		}
	})
	var users sync.WaitGroup
	for u := range 3 {
		users.Go(func() {
			for i := range 15 {
				name := "~/f" + string(rune('a'+u))
				if err := w.svc.WriteFile(w.ctx(), "a", name, 0o644, strings.NewReader("x")); err != nil {
					t.Errorf("write %d: %v", i, err)
					return
				}
				x, err := w.svc.RunExec(w.ctx(), "a", api.StartExec{ID: string(id.NewExec()), Argv: []string{"echo", "ok"}}, 100)
				if err != nil || x.Stdout != "ok\n" {
					t.Errorf("run %d: %+v, %v", i, x, err)
					return
				}
				time.Sleep(time.Duration(i) * 10 * time.Millisecond) // so that it has time to fall asleep: any length is right
			}
		})
	}
	users.Wait()
	close(stop)
	clocks.Wait()
	if w.count("a", event.WorkspacePaused)+w.count("a", event.WorkspaceSuspended) == 0 {
		t.Error("it never fell asleep")
	}
}

// TestIdleTimersSurviveARestart starts a new daemon shortly before a session is due.
func TestIdleTimersSurviveARestart(t *testing.T) {
	w, clk := newIdleWorld(t)
	w.sleepy("a", func(r *api.CreateSession) { r.Idle.PauseAfterMS = -1 })
	w.sleepy("b")
	clk.Forward(pauses)
	w.wait("b", "paused")
	clk.Forward(suspends - pauses - time.Minute)
	w.state("a", "running")
	w.restart()
	w.state("a", "running")
	w.state("b", "paused")
	clk.Forward(90 * time.Second)
	w.wait("a", "suspended")
	w.wait("b", "suspended")
}

// TestS10_WorkIsSavedBeforeATimeEnds lets a session's time end in the middle of its work.
func TestS10_WorkIsSavedBeforeATimeEnds(t *testing.T) {
	w, clk := newIdleWorld(t)
	s, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "a", Idle: api.Idle{ExpireAfterMS: (10 * time.Hour).Milliseconds()}})
	if err != nil {
		t.Fatal(err)
	}
	w.python("a", "work = 41")
	w.start("a", api.StartExec{ID: "work", Argv: []string{"sh", "-c", "echo begun > ~/file; sync; while [ ! -e ~/go ]; do sleep 0.1; done; echo done"}})
	w.sh("a", "until [ -s ~/file ]; do sleep 0.1; done")
	clk.Forward(8 * time.Hour)
	w.untilEvent("a", event.LimitWarned)
	w.state("a", "running")
	clk.Forward(2 * time.Hour)
	w.untilEvent("a", event.LimitReached)
	w.state("a", "suspended")
	refused := func(what string, err error) {
		t.Helper()
		if errdefs.CodeOf(err) != "session_expired" || !strings.Contains(errdefs.HintOf(err), "--expire-after") {
			t.Errorf("%s: %v (%s)", what, err, errdefs.HintOf(err))
		}
	}
	_, err = w.svc.StartExec(w.ctx(), "a", api.StartExec{ID: "more", Argv: []string{"true"}})
	refused("a command", err)
	_, err = w.svc.ResumeSession(w.ctx(), "a")
	refused("resume", err)
	refused("a file", w.svc.WriteFile(w.ctx(), "a", "~/x", 0o644, strings.NewReader("")))
	w.restart()
	_, err = w.svc.ResumeSession(w.ctx(), "a")
	refused("resume after a restart", err)
	// More time, and it goes on where it was.
	more := (20 * time.Hour).Milliseconds()
	after, err := w.svc.ConfigureSession(w.ctx(), "a", api.ConfigureSession{Idle: &api.ConfigureIdle{ExpireAfterMS: &more}})
	if err != nil {
		t.Fatal(err)
	}
	if after.Idle.ExpireAfterMS != more || after.ID != s.ID || after.Workspace.State != "suspended" {
		t.Errorf("%+v", after)
	}
	w.want(w.python("a", "print(work + 1)"), "42")
	w.want(w.sh("a", "touch ~/go; cat ~/file"), "begun")
	_, out := w.finish("a", "work")
	w.want(out, "done\n")
}

// TestS2_AutomaticSuspendIsAsCompleteAsAManualOne compares what comes back.
func TestS2_AutomaticSuspendIsAsCompleteAsAManualOne(t *testing.T) {
	w, clk := newIdleWorld(t)
	took := map[string]api.Checkpoint{}
	for _, how := range []string{"manual", "automatic"} {
		w.create(how, "")
		w.python(how, "x = 1")
		w.sh(how, "echo file > ~/file; echo tmp > /tmp/tmp; echo shm > /dev/shm/shm")
		w.start(how, api.StartExec{ID: how + "-cat", Argv: []string{"cat"}, Stdin: true, Background: true})
		if err := w.svc.WriteStdin(w.ctx(), how, id.Exec(how+"-cat"), 0, []byte("before\n"), false); err != nil {
			t.Fatal(err)
		}
		if how == "manual" {
			if _, err := w.svc.SuspendSession(w.ctx(), how); err != nil {
				t.Fatal(err)
			}
		} else {
			clk.Forward(suspends)
			w.wait(how, "suspended")
		}
		list, err := w.svc.ListCheckpoints(w.ctx(), how, api.Page{})
		if err != nil || len(list.Data) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		took[how] = list.Data[0]
		s, err := w.svc.ResumeSession(w.ctx(), how)
		if err != nil {
			t.Fatal(err)
		}
		w.want(strings.Join(s.ResumeReport.Layers, " "), "memory files transcript")
		w.want(w.python(how, "print(x + 1)"), "2")
		w.want(w.sh(how, "cat ~/file /tmp/tmp /dev/shm/shm | tr '\\n' ' '"), "file tmp shm")
		if err := w.svc.WriteStdin(w.ctx(), how, id.Exec(how+"-cat"), 7, []byte("after\n"), true); err != nil {
			t.Fatal(err)
		}
		_, out := w.finish(how, how+"-cat")
		w.want(out, "before\nafter\n")
	}
	a, m := took["automatic"], took["manual"]
	if a.Kind != m.Kind || a.Memory != m.Memory || !a.Memory || len(a.Layers) != len(m.Layers) {
		t.Errorf("automatic %+v, manual %+v", a, m)
	}
}

// TestColdSessionsAreInTheStoreOnly lets a session sleep until its memory is no file any more, and wakes it.
func TestColdSessionsAreInTheStoreOnly(t *testing.T) {
	w, clk := newIdleWorld(t)
	_, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "a", Idle: api.Idle{ArchiveAfterMS: (24 * time.Hour).Milliseconds()}})
	if err != nil {
		t.Fatal(err)
	}
	w.python("a", "x = 1")
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	c := w.get("a").Workspace.CheckpointID
	w.durable("a", c)
	images := func() int {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(w.dir, "checkpoints", c, "memory", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if images() == 0 {
		t.Fatal("it has no image as files")
	}
	clk.Forward(25 * time.Hour)
	ctx, cancel := w.timed()
	defer cancel()
	for images() > 0 {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("its image stays")
		}
	}
	w.want(w.python("a", "print(x)"), "1")
}

// tarOf is an archive with one file.
func tarOf(t *testing.T, to io.Writer, name, content string) {
	t.Helper()
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
