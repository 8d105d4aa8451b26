package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

const hookScript = `
mkdir -p /etc/perdure/hooks/pre-suspend.d /etc/perdure/hooks/post-resume.d /etc/perdure/hooks/post-fork.d
for o in pre-suspend post-resume post-fork; do
cat > /etc/perdure/hooks/$o.d/10-note <<'S'
#!/bin/sh
echo "$PERDURE_HOOK $PERDURE_SESSION ${PERDURE_OPERATION:--} ${PERDURE_FORK_OF:--} ${PERDURE_EPOCH:+epoch} ${PERDURE_SLEPT_SECONDS:+slept}" >> /root/hooks
echo noted
S
chmod +x /etc/perdure/hooks/$o.d/10-note
done
printf '#!/bin/sh\nexit 7\n' > /etc/perdure/hooks/pre-suspend.d/20-fails
chmod +x /etc/perdure/hooks/pre-suspend.d/20-fails`

// suspendHooks are those of the last suspend.
func (w *world) suspendHooks(ref string) []event.HookRun {
	w.t.Helper()
	list, err := w.svc.ListEvents(w.ctx(), ref, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var d event.WorkspaceSuspendedData
	for _, e := range list.Data {
		if e.Type == string(event.WorkspaceSuspended) {
			d = event.WorkspaceSuspendedData{}
			if err := json.Unmarshal(e.Data, &d); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return d.Hooks
}

// TestI4_HooksAroundSleepAndFork looks at what a workspace's hooks were told, when they ran, and what is told of them.
func TestI4_HooksAroundSleepAndFork(t *testing.T) {
	w, clk := newIdleWorld(t)
	a := w.create("a", "")
	w.sh("a", hookScript)
	w.python("a", "x = 1")
	hooks := func(ref string) string { return w.sh(ref, "sed 's/ *$//' /root/hooks; : > /root/hooks") }
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	runs := w.suspendHooks("a")
	if len(runs) != 2 || runs[0].Name != "10-note" || runs[0].Output != "noted\n" || runs[1].ExitCode == nil || *runs[1].ExitCode != 7 {
		t.Fatalf("before the suspend: %+v", runs)
	}
	s, err := w.svc.ResumeSession(w.ctx(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if h := s.ResumeReport.Hooks; len(h) != 1 || h[0].Occasion != "post-resume" || h[0].Output != "noted\n" {
		t.Errorf("after the resume: %+v", h)
	}
	w.want(w.python("a", "print(x)"), "1")
	woke := "post-resume " + a.ID + " - - epoch slept"
	w.want(hooks("a"), "pre-suspend "+a.ID+" suspend - epoch\n"+woke)
	// By itself, by way of a pause, it is as complete.
	w.fallAsleep(clk, "a", pauses, "paused")
	w.fallAsleep(clk, "a", suspends, "suspended")
	if runs := w.suspendHooks("a"); len(runs) != 2 || runs[0].Output != "noted\n" {
		t.Errorf("before an automatic suspend: %+v", runs)
	}
	w.want(hooks("a"), "pre-suspend "+a.ID+" suspend - epoch\n"+woke)
	// A checkpoint disturbs nobody. Each fork has its hook run before its first command, the parent none.
	forks, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Count: 2, Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forks.Data {
		w.want(hooks(f.ID), "post-fork "+f.ID+" - "+a.ID+" epoch slept")
	}
	w.want(hooks("a"), "")
	c, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: c.ID})
	if err != nil {
		t.Fatal(err)
	}
	if h := plan.ResumeReport.Hooks; len(h) != 1 || h[0].Occasion != "post-resume" {
		t.Errorf("after the rollback: %+v", h)
	}
	w.want(hooks("a"), woke)
}

// TestI4_AFailedSuspendAfterHooksLeavesItPaused lets the suspend of a paused session fail after its hooks ran.
func TestI4_AFailedSuspendAfterHooksLeavesItPaused(t *testing.T) {
	w, clk := newIdleWorld(t)
	fails := true
	w.close()
	w.wrapLog = func(l event.Log) event.Log { return failingHead{l, &fails} }
	w.open()
	w.sleepy("a")
	w.fallAsleep(clk, "a", pauses, "paused")
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err == nil || !strings.Contains(err.Error(), "no head") {
		t.Fatalf("it was suspended: %v", err)
	}
	w.state("a", "paused")
	fails = false
	w.sh("a", "true")
	w.state("a", "running")
}

// failingHead is a log that cannot say where it ends.
type failingHead struct {
	event.Log
	fails *bool
}

func (f failingHead) Head(ctx context.Context, sid id.Session) (event.Head, error) {
	if *f.fails {
		return event.Head{}, errors.New("no head")
	}
	return f.Log.Head(ctx, sid)
}
