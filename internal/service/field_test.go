package service_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
)

// output returns what a command has printed so far.
func (w *world) output(ref, exec string) string {
	w.t.Helper()
	r, err := w.svc.ExecOutput(w.ctx(), ref, id.Exec(exec), "stdout", 0, false)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	var out strings.Builder
	buf := make([]byte, 1<<16)
	for {
		n, err := r.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			return out.String()
		}
	}
}

// TestS5_S7_ForksOfAWriterAreWholeAndItGoesOn takes forks while a program writes. Each holds what was written the moment before, nothing torn, and the
// parent runs on.
func TestS5_S7_ForksOfAWriterAreWholeAndItGoesOn(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	// Each round replaces one file and appends to another, in this order, so that the two never differ by more than one.
	writer := w.start("a", api.StartExec{Background: true, Argv: []string{"bash", "-c",
		"cd /root; i=0; while :; do i=$((i+1)); echo $i > new; mv new last; echo $i >> all; done"}})
	seen := 0
	for n := range 3 {
		w.sh("a", fmt.Sprintf("echo moment %d > /root/moment", n)) // no sync
		forks, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Name: fmt.Sprintf("kid%d", n)})
		if err != nil {
			t.Fatal(err)
		}
		kid := forks.Data[0].Name
		w.want(w.sh(kid, "cat /root/moment"), fmt.Sprintf("moment %d", n))
		if err := w.svc.SignalExec(w.ctx(), kid, id.Exec(writer.ID), int(syscall.SIGKILL)); err != nil { // its copy runs on too
			t.Fatal(err)
		}
		got := strings.Fields(w.sh(kid, `cd /root; cat last; tail -n 1 all; awk '$1 != NR {bad++} END {print bad + 0}' all`))
		last, err1 := strconv.Atoi(got[0])
		tail, err2 := strconv.Atoi(got[1])
		if err1 != nil || err2 != nil || last-tail < 0 || last-tail > 1 || got[2] != "0" {
			t.Errorf("fork %d has last %s, all %s, %s lines out of order", n, got[0], got[1], got[2])
		}
		now, err := strconv.Atoi(w.sh("a", "cat /root/last"))
		if err != nil || now <= seen {
			t.Errorf("the parent stands at %d after %d: %v", now, seen, err)
		}
		seen = now
		w.state("a", "running")
	}
}

// TestX2_BackgroundCommandIsKnownSuspendsLater lists, reads and kills a command that was started some suspends and a daemon ago.
func TestX2_BackgroundCommandIsKnownSuspendsLater(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	x := w.start("a", api.StartExec{Background: true, Label: "ticker", Argv: []string{"bash", "-c",
		"i=0; while :; do i=$((i+1)); echo tick $i; echo $i > /root/tick; sleep 0.1; done"}})
	for n := range 3 {
		if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
			t.Fatal(err)
		}
		asleep := len(w.output("a", x.ID)) // read while there is no sandbox
		if asleep == 0 && n > 0 {
			t.Error("what it printed is not readable while it sleeps")
		}
		if n == 1 {
			w.restart()
		}
		if _, err := w.svc.ResumeSession(w.ctx(), "a"); err != nil {
			t.Fatal(err)
		}
		before := w.sh("a", "cat /root/tick 2>/dev/null || echo 0")
		w.sh("a", "until [ \"$(cat /root/tick 2>/dev/null || echo 0)\" -gt "+before+" ]; do sleep 0.05; done") // it goes on
		list, err := w.svc.ListExecs(w.ctx(), "a", api.Page{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range list.Data {
			found = found || e.ID == x.ID && e.State == "running" && e.Label == "ticker"
		}
		if !found {
			t.Fatalf("after suspend %d it is not listed as running: %+v", n+1, list.Data)
		}
	}
	if err := w.svc.SignalExec(w.ctx(), "a", id.Exec(x.ID), int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	got, out := w.finish("a", x.ID)
	if got.Signal != "SIGKILL" {
		t.Errorf("it ended with %+v", got)
	}
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") { // nothing lost, nothing twice
		if line != fmt.Sprintf("tick %d", i+1) {
			t.Fatalf("line %d of its output is %q", i+1, line)
		}
	}
}

// TestS3_NewBuildAdoptsTheSandboxesOfTheOld starts a service with another engine over sandboxes that run, and over some that sleep.
func TestS3_NewBuildAdoptsTheSandboxesOfTheOld(t *testing.T) {
	w := newWorld(t)
	w.create("awake", "")
	w.create("asleep", "")
	w.want(w.python("awake", "x = 41\nx"), "41")
	x := w.start("awake", api.StartExec{Background: true, Argv: []string{"bash", "-c", "until [ -e /root/go ]; do sleep 0.1; done; echo done"}})
	if _, err := w.svc.CreateCheckpoint(w.ctx(), "awake", api.CreateCheckpoint{Message: "old"}); err != nil {
		t.Fatal(err)
	}
	w.sh("asleep", "echo kept > /root/f")
	w.python("asleep", "x = 7")
	if _, err := w.svc.SuspendSession(w.ctx(), "asleep"); err != nil {
		t.Fatal(err)
	}
	w.close()
	// The engine of another version of gVisor: everything but what it says of itself.
	newer := filepath.Join(w.dir, "engine-of-tomorrow")
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = probe ]; then %[1]s \"$@\" | sed 's/\"Version\":\"[^\"]*\"/\"Version\":\"v99.0.0\"/'; exit; fi\nexec %[1]s \"$@\"\n", w.bins.Engine)
	if err := os.WriteFile(newer, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	w.bins.Engine = newer
	w.open()
	// What runs goes on in the old engine, memory and all.
	w.want(w.python("awake", "x + 1"), "42")
	w.sh("awake", "touch /root/go")
	if got, out := w.finish("awake", x.ID); got.ExitCode == nil || *got.ExitCode != 0 || out != "done\n" {
		t.Errorf("the command of the old daemon: %+v %q", got, out)
	}
	if _, err := w.svc.CreateCheckpoint(w.ctx(), "awake", api.CreateCheckpoint{Message: "by the old engine"}); err != nil {
		t.Error(err)
	}
	// What sleeps comes back with its files; that its memory does not is said.
	s, err := w.svc.ResumeSession(w.ctx(), "asleep")
	if err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("asleep", "cat /root/f"), "kept")
	if s.ResumeReport == nil || !strings.Contains(strings.Join(s.ResumeReport.Lost, "\n"), "v99.0.0") {
		t.Errorf("the resume report does not tell of the engine: %+v", s.ResumeReport)
	}
	// And nothing is stranded: the old checkpoint is a place to go to.
	if _, err := w.svc.RollbackSession(w.ctx(), "awake", api.RollbackSession{Checkpoint: "old"}); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("awake", "ls /root/go 2>/dev/null || echo none"), "none")
}
