package service_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/clock/clocktest"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/sandbox/process"
	"perdure.dev/perdure/internal/service"
)

// newAutoWorld is a world in which checkpoints are taken as by a daemon.
func newAutoWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	auto, err := service.Auto(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{auto: auto}
	for _, f := range change {
		f(w)
	}
	w.begin(t)
	return w
}

// kinds are those of a session's checkpoints, with their messages.
func (w *world) kinds(ref string) (out []string) {
	w.t.Helper()
	list, err := w.svc.ListCheckpoints(w.ctx(), ref, api.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range list.Data {
		out = append(out, strings.TrimSpace(c.Kind+" "+c.Message))
	}
	return out
}

func (w *world) wantKinds(ref string, want ...string) {
	w.t.Helper()
	if got := w.kinds(ref); !slices.Equal(got, want) {
		w.t.Errorf("%s has the checkpoints %q, want %q", ref, got, want)
	}
}

// carefulScript does something harmless, and then something risky.
const carefulScript = `
turns:
  - when: {last: user, user: "talk"}
    text: Of course.
  - when: {last: user, user: "again"}
    calls:
      - {tool: run, args: {command: "echo again > /root/again"}}
  - when: {last: user}
    calls:
      - {tool: run, args: {command: "mkdir -p /root/data && echo dear > /root/data/file"}}
      - {tool: run, args: {command: "rm -rf /root/data"}}
  - when: {last: tool}
    text: Done.
`

// TestAutomaticCheckpoints follows a turn with a risky call, goes back to before it, and lets the agent talk only, which changes nothing.
func TestAutomaticCheckpoints(t *testing.T) {
	w := newAutoWorld(t)
	w.agent("a", "clean up", carefulScript)
	w.wait("a", "answered")
	w.untilCheckpoints("a", 2)
	w.wantKinds("a", "risky before run", "turn")
	w.tell("a", "talk")
	w.untilTurns("a", 2)
	w.wantKinds("a", "risky before run", "turn")
	w.tell("a", "again")
	w.untilTurns("a", 3)
	w.untilCheckpoints("a", 3)
	w.wantKinds("a", "risky before run", "turn", "turn")
	list, err := w.svc.ListCheckpoints(w.ctx(), "a", api.Page{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: list.Data[0].ID}); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat /root/data/file"), "dear")
}

func (w *world) tell(ref, text string) {
	w.t.Helper()
	if _, err := w.svc.SendMessages(w.ctx(), ref, api.SendMessages{Messages: []api.Message{{Text: text}}}); err != nil {
		w.t.Fatal(err)
	}
}

// untilCheckpoints waits until a session has so many: the last of a turn comes after its end.
func (w *world) untilCheckpoints(ref string, n int) { w.untilMany(ref, event.CheckpointCreated, n) }

func (w *world) untilTurns(ref string, n int) { w.untilMany(ref, event.TurnFinished, n) }

func (w *world) untilMany(ref string, kind event.Type, n int) {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	items, err := w.svc.Subscribe(ctx, ref, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for item, err := range items {
		if err != nil {
			w.t.Fatalf("waiting for %d of %s: %v", n, kind, err)
		}
		if item.Event != nil && item.Event.Type == string(kind) {
			if n--; n == 0 {
				return
			}
		}
	}
}

// TestAutomaticCheckpointsCanBeSwitchedOff does the same where nobody wants them, and where only one's own pattern is risky.
func TestAutomaticCheckpointsCanBeSwitchedOff(t *testing.T) {
	w := newAutoWorld(t)
	create := func(name string, c api.Checkpoints) {
		t.Helper()
		if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: name, Goal: "clean up", Model: w.script(name, carefulScript), Checkpoints: c}); err != nil {
			t.Fatal(err)
		}
		w.wait(name, "answered")
	}
	create("off", api.Checkpoints{Turns: "off", Risky: "off"})
	w.wantKinds("off")
	create("own", api.Checkpoints{Turns: "off", RiskyCalls: []string{`run=mkdir`}})
	w.wantKinds("own", "risky before run")
	on := "on"
	s, err := w.svc.ConfigureSession(w.ctx(), "off", api.ConfigureSession{Checkpoints: &api.ConfigureCheckpoints{Turns: &on}})
	if err != nil || s.Checkpoints.Turns != "on" || s.Checkpoints.Risky != "off" {
		t.Fatalf("%+v, %v", s.Checkpoints, err)
	}
	w.restart()
	w.tell("off", "again")
	w.untilCheckpoints("off", 1)
	w.wantKinds("off", "turn")
	for code, c := range map[string]api.Checkpoints{
		"risk_invalid": {RiskyCalls: []string{"run=("}}, "checkpoint_interval": {EveryMS: 1},
	} {
		if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "bad", Checkpoints: c}); errdefs.CodeOf(err) != code {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestCheckpointsByTheClock puts the clock forward: one is taken when somebody has worked in the workspace, and none when nobody has.
func TestCheckpointsByTheClock(t *testing.T) {
	clk := clocktest.New()
	w := newAutoWorld(t, func(w *world) { w.clock = clk })
	const every = 20 * time.Minute
	if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "a", Checkpoints: api.Checkpoints{EveryMS: every.Milliseconds()}}); err != nil {
		t.Fatal(err)
	}
	w.sh("a", "echo one > /root/file")
	clk.Forward(every)
	w.untilCheckpoints("a", 1)
	w.wantKinds("a", "timer")
	clk.Forward(every) // nobody has been there
	clk.Forward(every)
	w.sh("a", "echo two > /root/file")
	clk.Forward(every)
	w.untilCheckpoints("a", 2)
	w.wantKinds("a", "timer", "timer")
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	clk.Forward(every)
	w.wantKinds("a", "timer", "timer", "suspend")
}

// TestAMissedCheckpointStopsNobody has nowhere to put the first checkpoint at the end of a turn.
func TestAMissedCheckpointStopsNobody(t *testing.T) {
	var once sync.Once
	var dir string
	move := func(from, to string) {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Error(err)
		}
	}
	w := newAutoWorld(t, func(w *world) {
		w.step = func(point string) {
			if point == "autosave" {
				once.Do(func() {
					dir = w.dir
					move("checkpoints", "aside")
					w.put(filepath.Join(dir, "checkpoints"), "")
				})
			}
		}
	})
	w.agent("a", "again", carefulScript)
	w.wait("a", "answered")
	w.untilEvent("a", event.CheckpointMissed)
	w.remove(filepath.Join(dir, "checkpoints"))
	move("aside", "checkpoints")
	w.tell("a", "again")
	w.untilCheckpoints("a", 1)
	w.wantKinds("a", "turn")
}

// TestRetentionOfASession keeps what the session asks for.
func TestRetentionOfASession(t *testing.T) {
	clk := clocktest.New()
	w := newAutoWorld(t, func(w *world) { w.clock = clk })
	if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{
		Name: "a", Driver: process.Name, Checkpoints: api.Checkpoints{EveryMS: 600_000, KeepLast: 2, KeepHourly: -1, KeepDaily: -1},
	}); err != nil {
		t.Fatal(err)
	}
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{Message: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		w.sh("a", "true")
		clk.Forward(10 * time.Minute)
		w.untilCheckpoints("a", i+2)
	}
	w.untilMany("a", event.CheckpointDeleted, 2)
	w.wantKinds("a", "user mine", "timer", "timer", "timer") // the last is the one that the workspace descends from
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: ck.ID}); err != nil {
		t.Fatal(err)
	}
}
