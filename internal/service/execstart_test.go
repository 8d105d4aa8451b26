package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// events returns the types of a session's events about one command, once there are as many as wanted.
func (w *world) execEvents(ref, exec string, want int) []string {
	w.t.Helper()
	ctx, cancel := w.timed()
	defer cancel()
	for {
		list, err := w.svc.ListEvents(ctx, ref, 0, 500)
		if err != nil {
			w.t.Fatal(err)
		}
		var types []string
		for _, e := range list.Data {
			var d struct {
				ExecID string `json:"exec_id"`
			}
			if err := json.Unmarshal(e.Data, &d); err == nil && d.ExecID == exec {
				types = append(types, e.Type)
			}
		}
		if len(types) >= want {
			return types
		}
		select {
		case <-time.After(10 * time.Millisecond): // the log follows the result
		case <-ctx.Done():
			w.t.Fatalf("events of %s: %v, want %d", exec, types, want)
		}
	}
}

// A command that several ask for at once, waiting or not, is started, run and logged once, and all get its result.
func TestExecRunsOnceWhoeverAsks(t *testing.T) {
	w := newWorld(t)
	w.create("one", "process")
	req := api.StartExec{ID: "same", Argv: []string{"sh", "-c", "echo x >>log; sleep 0.2; wc -l <log; exit 4"}}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if i%2 == 1 {
				if _, err := w.svc.StartExec(w.ctx(), "one", req); err != nil {
					t.Errorf("start: %v", err)
				}
				return
			}
			x, err := w.svc.RunExec(w.ctx(), "one", req, 100)
			if err != nil || x.ExitCode == nil || *x.ExitCode != 4 || x.Stdout != "1\n" {
				t.Errorf("run: %+v %v", x, err)
			}
		})
	}
	wg.Wait()
	if x, err := w.svc.RunExec(w.ctx(), "one", req, 1); err != nil || x.Stdout != "1" || x.StdoutSize != 2 {
		t.Errorf("again, of what has ended: %+v %v", x, err)
	}
	w.sh("one", "true") // what is logged now comes behind the end of the first
	if got := w.execEvents("one", "same", 2); len(got) != 2 || got[0] != "exec.started" || got[1] != "exec.finished" {
		t.Errorf("%v", got)
	}
}

// A client that goes away while it waits takes nothing along, and the end is in the log also if nothing follows.
func TestExecGoesOnWithoutItsClient(t *testing.T) {
	w := newWorld(t)
	w.create("one", "process")
	ctx, leave := context.WithCancelCause(w.ctx())
	gone := errors.New("gone")
	done := make(chan error, 1)
	go func() {
		_, err := w.svc.RunExec(ctx, "one", api.StartExec{ID: "alone", Argv: []string{"sh", "-c", "touch begun; until [ -e go ]; do sleep 0.02; done; echo end"}}, 100)
		done <- err
	}()
	w.sh("one", "until [ -e begun ]; do sleep 0.02; done")
	leave(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	w.sh("one", "touch go")
	if _, out := w.finish("one", "alone"); out != "end\n" {
		t.Errorf("%q", out)
	}
	if got := w.execEvents("one", "alone", 2); got[1] != "exec.finished" {
		t.Errorf("%v", got)
	}
}

// What cannot be started is an error with a record, and is no running command in the log.
func TestExecThatCannotStart(t *testing.T) {
	w := newWorld(t)
	w.create("one", "process")
	for exec, code := range map[string]string{"missing": "command_not_found", "directory": "command_not_executable"} {
		argv := map[string]string{"missing": "/no/such/program", "directory": "/"}[exec]
		if _, err := w.svc.RunExec(w.ctx(), "one", api.StartExec{ID: exec, Argv: []string{argv}}, 100); errdefs.CodeOf(err) != code {
			t.Errorf("%s: %v", exec, err)
		}
		if x, err := w.svc.GetExec(w.ctx(), "one", id.Exec(exec)); err != nil || x.ExitCode == nil {
			t.Errorf("%s: %+v %v", exec, x, err)
		}
		w.execEvents("one", exec, 2)
	}
}

// The end of a command that the daemon had no time to log is found by the next one.
func TestExecEndIsLoggedByTheNextDaemon(t *testing.T) {
	w := newWorld(t)
	w.create("one", "process")
	if _, err := w.svc.RunExec(w.ctx(), "one", api.StartExec{ID: "quick", Argv: []string{"true"}}, 0); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if got := w.execEvents("one", "quick", 2); got[1] != "exec.finished" {
		t.Errorf("%v", got)
	}
}
