package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"perdure.dev/perdure/api"
)

// intact checks what must hold at every moment: logs, checkpoints, and that everything has an owner.
func (w *world) intact() {
	w.t.Helper()
	sandboxes := map[string]string{} // id → session
	listed := map[string]bool{}
	for name, s := range w.sessions() {
		listed[s.ID] = true
		if s.Workspace.SandboxID != "" {
			sandboxes[s.Workspace.SandboxID] = name
			w.owned[s.Workspace.SandboxID] = true
		}
		w.nothingLost(s)
		w.sound(name)
		for _, c := range must[api.List[api.Checkpoint]](w, "checkpoints")(w.c.Checkpoints(w.ctx(), name, api.Page{Limit: 1000})).Data {
			if c.State == "failed" {
				w.t.Errorf("checkpoint %s of %s has failed: %s", c.ID, name, c.Error)
			}
		}
	}
	within(w.t, deathIn, "everything has an owner", func() error {
		for pid, sb := range w.processes() {
			if sb != spare && sandboxes[sb] == "" {
				return fmt.Errorf("L1: process %d of sandbox %q belongs to no session", pid, sb)
			}
		}
		if spares := w.spares(); len(spares) > 1 {
			return fmt.Errorf("L1: %d spare sandboxes: %v", len(spares), spares)
		}
		for _, e := range w.entries("run") {
			if sandboxes[e] == "" {
				return fmt.Errorf("L1: run/%s belongs to no session", e)
			}
		}
		for _, e := range w.entries("sessions") {
			if !listed[e] {
				return fmt.Errorf("L1: sessions/%s belongs to no session", e)
			}
		}
		for _, e := range w.entries("checkpoints") {
			if _, err := w.c.Checkpoint(w.ctx(), e); err != nil {
				return fmt.Errorf("L1: checkpoints/%s: %w", e, err)
			}
		}
		return nil
	})
}

// nothingLost checks a session's log against what we were told before.
func (w *world) nothingLost(s api.Session) {
	w.t.Helper()
	log := map[uint64]bool{}
	for _, e := range w.events(s.ID) {
		log[e.Seq] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for seq := range w.seen[s.ID] {
		if !log[seq] {
			w.t.Errorf("H1: event %d of %s is lost, and a client has seen it", seq, s.Name)
		}
	}
}

// sound runs verify over a session.
func (w *world) sound(ref string) {
	w.t.Helper()
	v, err := w.c.VerifySession(w.ctx(), ref)
	if err != nil {
		w.t.Errorf("verify %s: %v", ref, err)
		return
	}
	for _, p := range v.Problems {
		w.t.Errorf("verify %s: %s: %s: %s", ref, p.Subject, p.Code, p.Detail)
	}
}

// answered checks that every command and every tool call of an idle session has exactly one end.
func (w *world) answered(ref string) {
	w.t.Helper()
	until(w.t, "everything has ended in "+ref, func() error {
		open := map[string]int{}
		unrun := map[string]bool{} // ended without an exit code: a client may start it again, and the file tells whether it ran twice
		for _, e := range w.events(ref) {
			var d struct {
				ExecID   string `json:"exec_id"`
				ExitCode *int   `json:"exit_code"`
			}
			switch {
			case strings.HasPrefix(e.Type, "exec."):
				if err := json.Unmarshal(e.Data, &d); err != nil {
					return err
				}
			case e.Type == "tool.requested":
				d.ExecID = e.ID
			case e.Type == "tool.finished":
				d.ExecID = e.CausationID
			default:
				continue
			}
			switch e.Type {
			case "exec.started", "tool.requested":
				if _, ok := open[d.ExecID]; ok && !unrun[d.ExecID] {
					w.t.Fatalf("H4: %s of %s started twice", d.ExecID, ref)
				}
				open[d.ExecID], unrun[d.ExecID] = 1, false
			default:
				if open[d.ExecID]--; open[d.ExecID] < 0 {
					w.t.Fatalf("H1: %s of %s has two ends", d.ExecID, ref)
				}
				unrun[d.ExecID] = e.Type == "exec.finished" && d.ExitCode == nil
			}
		}
		for x, n := range open {
			if n != 0 {
				return fmt.Errorf("H1: %s has no end", x)
			}
		}
		return nil
	})
}

// entries lists a directory of the data directory.
func (w *world) entries(name string) []string {
	w.t.Helper()
	list, err := os.ReadDir(filepath.Join(w.data(), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		if _, err := e.Info(); err == nil { // else it went in this moment
			out = append(out, e.Name())
		}
	}
	return out
}

// end removes every session and checks that nothing is left of them.
func (w *world) end() {
	w.t.Helper()
	w.order("")
	if w.fell(0) {
		w.up()
	}
	for name := range w.sessions() {
		if err := w.c.DeleteSession(w.ctx(), name); err != nil {
			w.t.Errorf("rm %s: %v", name, err)
		}
	}
	w.bare()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Error(err)
	}
	if !w.fell(patience) {
		w.t.Error("the daemon does not stop when asked to")
		w.kill()
	}
}

// bare checks that nothing of any session is left on the machine.
func (w *world) bare() {
	w.t.Helper()
	deadline := time.Now().Add(deathIn)
	for {
		left := w.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("L1: left behind by rm:\n\t%s", strings.Join(left, "\n\t"))
			return
		}
		time.Sleep(poll)
	}
}

func (w *world) left() []string {
	var left []string
	for _, name := range []string{"run", "layers", "checkpoints", "sessions", "trash"} {
		for _, e := range w.entries(name) {
			left = append(left, name+"/"+e)
		}
	}
	for pid, sb := range w.processes() {
		if sb != spare { // the daemon's own, while it lives
			left = append(left, fmt.Sprintf("process %d of %s", pid, sb))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, w.dir) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/*sbx_*", "/sys/fs/cgroup/*/*/*sbx_*", "/sys/fs/cgroup/*sbx_*", "/run/netns/*sbx_*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range found {
			if w.owned[filepath.Base(f)[strings.Index(filepath.Base(f), "sbx_"):]] {
				left = append(left, f)
			}
		}
	}
	return left
}
