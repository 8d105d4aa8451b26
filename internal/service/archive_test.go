package service_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/portable"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/process"
)

func (w *world) export(ref string, req api.ExportSession) []byte {
	w.t.Helper()
	var buf bytes.Buffer
	if err := w.svc.ExportSession(w.ctx(), ref, req, &buf); err != nil {
		w.t.Fatalf("export: %v", err)
	}
	return buf.Bytes()
}

func (w *world) imports(archive []byte, req api.ImportSession) api.Session {
	w.t.Helper()
	s, err := w.svc.ImportSession(w.ctx(), req, bytes.NewReader(archive))
	if err != nil {
		w.t.Fatalf("import: %v", err)
	}
	return s
}

func (w *world) verified(ref string) {
	w.t.Helper()
	if v, err := w.svc.VerifySession(w.ctx(), ref); err != nil || !v.OK {
		w.t.Errorf("verify %s: %+v, %v", ref, v, err)
	}
}

// server is a program that answers on a port of the loopback.
const server = `python3 -c '
import socket
s = socket.create_server(("127.0.0.1", 8123))
while True:
    c, _ = s.accept(); c.sendall(b"alive\n"); c.close()
'`

const askServer = `python3 -c 'import socket; print(socket.create_connection(("127.0.0.1", 8123), 10).makefile().read())'`

func (w *world) serve(ref string) string {
	w.t.Helper()
	x := w.start(ref, api.StartExec{Argv: []string{"bash", "-c", server}, Background: true, Label: "server"})
	w.sh(ref, `for i in $(seq 300); do `+askServer+` 2>/dev/null && exit 0; sleep 0.1; done; exit 1`)
	return x.ID
}

// TestArchive moves a session that runs, with a variable in an interpreter and a server that answers, into another data directory.
func TestArchive(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	s := from.create("a", "")
	from.sh("a", "echo kept > ~/file; mkdir -p ~/d; ln ~/file ~/d/again; ln -s /etc/passwd ~/link; rm -f /etc/profile; chmod 000 ~/d/again")
	from.python("a", "x = 41")
	server := from.serve("a")
	if _, err := from.svc.CreateCheckpoint(from.ctx(), "a", api.CreateCheckpoint{Message: "before"}); err != nil {
		t.Fatal(err)
	}
	archive := from.export("a", api.ExportSession{})
	from.want(from.python("a", "x"), "41") // it runs on
	from.python("a", "x = 99")
	h, _, err := portable.Check(bytes.NewReader(archive))
	if err != nil || !h.Memory || string(h.Session.ID) != s.ID || h.Session.Name != "a" {
		t.Fatalf("%+v, %v", h, err)
	}

	got := to.imports(archive, api.ImportSession{})
	if got.ID != s.ID || got.Name != "a" || got.Workspace.State != "suspended" || got.Imported == nil || !got.Imported.Memory {
		t.Fatalf("%+v", got)
	}
	to.verified("a")
	if _, err := to.svc.ResumeSession(to.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	if r := to.get("a").ResumeReport; r == nil || !slices.Contains(r.Layers, "memory") || len(r.Devolved) > 0 {
		t.Fatalf("report: %+v", r)
	}
	to.want(to.python("a", "x"), "41")
	to.want(to.sh("a", askServer), "alive")
	to.want(to.sh("a", "cat ~/file; readlink ~/link; ls /etc/profile 2>/dev/null; stat -c %a:%h ~/file"), "kept\n/etc/passwd\n0:2")
	if x, err := to.svc.GetExec(to.ctx(), "a", "exec_x"); err == nil {
		t.Errorf("%+v", x)
	}
	execs, err := to.svc.ListExecs(to.ctx(), "a", api.Page{Limit: 100})
	if err != nil || !slices.ContainsFunc(execs.Data, func(x api.Exec) bool { return x.ID == server && x.State == "running" }) {
		t.Errorf("execs: %+v, %v", execs.Data, err)
	}
	to.restart()
	to.want(to.python("a", "x"), "41")
	if _, err := to.svc.SuspendSession(to.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	to.want(to.python("a", "x"), "41")
	to.verified("a")

	// There and back again: what is here already becomes a copy, with a key of its own.
	if _, err := from.svc.ImportSession(from.ctx(), api.ImportSession{}, bytes.NewReader(to.export("a", api.ExportSession{}))); errdefs.CodeOf(err) != "name_taken" || !strings.Contains(errdefs.HintOf(err), "--name") {
		t.Errorf("a name that is taken: %v", err)
	}
	back := from.imports(to.export("a", api.ExportSession{}), api.ImportSession{Name: "b"})
	if back.ID == s.ID || back.Imported.SessionID != s.ID || back.Name != "b" {
		t.Fatalf("%+v", back)
	}
	from.verified("b")
	from.want(from.python("b", "x"), "41")
	from.want(from.sh("b", askServer), "alive")
	from.want(from.python("a", "x"), "99")
	keys, err := os.ReadDir(filepath.Join(from.dir, "keys"))
	if err != nil || len(keys) != 2 {
		t.Errorf("keys: %v, %v", keys, err)
	}
}

// TestArchiveOfAFork has its parent's transcript too, without its parent.
func TestArchiveOfAFork(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	from.create("a", process.Name)
	from.sh("a", "echo one > ~/file")
	forks, err := from.svc.ForkSession(from.ctx(), "a", api.ForkSession{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	from.sh("b", "echo two > ~/file")
	if _, err := from.svc.StopSession(from.ctx(), "b"); err != nil {
		t.Fatal(err)
	}
	archive := from.export("b", api.ExportSession{})
	got := to.imports(archive, api.ImportSession{})
	if got.ID != forks.Data[0].ID || got.Workspace.State != "stopped" {
		t.Fatalf("%+v", got)
	}
	to.want(to.sh("b", "cat ~/file"), "two")
	lines := func(w *world) (n int) {
		w.t.Helper()
		line, err := w.svc.Timeline(w.ctx(), "b")
		if err != nil {
			w.t.Fatal(err)
		}
		return len(line.Ranges)
	}
	if n := lines(to); n < 2 {
		t.Errorf("its timeline has %d ranges", n)
	}
	to.verified("b")
	if list, err := to.svc.ListSessions(to.ctx(), api.Page{Limit: 10}); err != nil || len(list.Data) != 1 {
		t.Errorf("sessions: %+v, %v", list.Data, err)
	}
	again := to.imports(archive, api.ImportSession{Name: "c"}) // the parent's log is here already, so is the session
	to.want(to.sh("c", "cat ~/file"), "two")
	to.verified("c")
	if err := to.svc.DeleteSession(to.ctx(), again.ID); err != nil {
		t.Fatal(err)
	}
	to.restart()
	to.want(to.sh("b", "cat ~/file"), "two")
	if err := to.svc.DeleteSession(to.ctx(), "b"); err != nil {
		t.Fatal(err)
	}
	// All of it is gone, the parent's log too: so its id is free.
	if got := to.imports(archive, api.ImportSession{}); got.ID != forks.Data[0].ID {
		t.Errorf("%+v", got)
	}
}

// TestArchiveWithoutMemory comes from a machine whose memory images are of no use here.
func TestArchiveWithoutMemory(t *testing.T) {
	from := newWorld(t)
	from.create("a", "")
	from.sh("a", "echo kept > ~/file")
	from.python("a", "x = 41")
	archive := from.export("a", api.ExportSession{})
	for code, machine := range map[string]func(*sandbox.Capabilities){
		event.LostToEngine: func(c *sandbox.Capabilities) { c.Version = "v9.9.9" },
		event.LostToCPU:    func(c *sandbox.Capabilities) { c.CPU = &sandbox.CPU{CacheLine: c.CPU.CacheLine} },
	} {
		to := &world{machine: machine}
		to.begin(t)
		_, err := to.svc.ImportSession(to.ctx(), api.ImportSession{}, bytes.NewReader(archive))
		if errdefs.CodeOf(err) != "memory_unusable" || !strings.Contains(err.Error(), code) || !strings.Contains(errdefs.HintOf(err), "--no-memory") {
			t.Errorf("%s: %v", code, err)
		}
		s := to.imports(archive, api.ImportSession{NoMemory: true})
		if s.Workspace.State != "stopped" || s.Imported.Memory {
			t.Errorf("%+v", s)
		}
		to.want(to.sh("a", "cat ~/file"), "kept")
		to.verified("a")
	}
	small := from.export("a", api.ExportSession{NoMemory: true})
	if len(small) > len(archive)/4 {
		t.Errorf("without memory it has %d bytes, with it %d", len(small), len(archive))
	}
	to := newWorld(t)
	to.imports(small, api.ImportSession{Name: "other"})
	to.want(to.sh("other", "cat ~/file"), "kept")
	to.verified("other")
}

// TestArchiveOfACheckpoint takes the session back to it.
func TestArchiveOfACheckpoint(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	from.create("a", process.Name)
	from.sh("a", "echo one > ~/file")
	if _, err := from.svc.CreateCheckpoint(from.ctx(), "a", api.CreateCheckpoint{Message: "one"}); err != nil {
		t.Fatal(err)
	}
	from.sh("a", "echo two > ~/file")
	to.imports(from.export("a", api.ExportSession{Checkpoint: "one"}), api.ImportSession{})
	to.want(to.sh("a", "cat ~/file"), "one")
	if _, err := to.svc.RollbackSession(to.ctx(), "a", api.RollbackSession{Checkpoint: "one"}); err != nil {
		t.Error(err)
	}
}

// TestDamagedArchivesLeaveNothing: an archive that was cut or changed anywhere makes no session, and leaves nothing behind.
func TestDamagedArchivesLeaveNothing(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	from.create("a", process.Name)
	from.sh("a", "head -c 300000 /dev/urandom > ~/file")
	archive := from.export("a", api.ExportSession{})
	empty := func() {
		t.Helper()
		for _, name := range []string{"sessions", "layers", "checkpoints", "trash", "images", "keys"} {
			entries, err := os.ReadDir(filepath.Join(to.dir, name))
			if err != nil || len(entries) > 0 {
				t.Fatalf("%s: %v, %v", name, entries, err)
			}
		}
	}
	for n := 0; n < len(archive); n += len(archive)/40 + 1 {
		_, err := to.svc.ImportSession(to.ctx(), api.ImportSession{}, bytes.NewReader(archive[:n]))
		if errdefs.CodeOf(err) != "archive_truncated" {
			t.Errorf("cut at %d of %d: %v", n, len(archive), err)
		}
		bad := bytes.Clone(archive)
		bad[n] ^= 0x10
		_, err = to.svc.ImportSession(to.ctx(), api.ImportSession{}, bytes.NewReader(bad))
		if err == nil || errdefs.KindOf(err) != errdefs.Invalid && errdefs.KindOf(err) != errdefs.Corrupt {
			t.Errorf("changed at %d of %d: %v", n, len(archive), err)
		}
		empty()
	}
	if _, err := to.svc.ImportSession(to.ctx(), api.ImportSession{}, io.MultiReader(bytes.NewReader(archive), strings.NewReader("more"))); err == nil {
		t.Error("something stood behind its end")
	}
	empty()
	to.imports(archive, api.ImportSession{})
}

// TestArchiveInTheMiddleOfATurn: the copy has the command that runs, but nobody drives it on there, since the original does. The agent learns so, and
// works on when it is asked.
func TestArchiveInTheMiddleOfATurn(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	from.agent("a", "do it", slowScript)
	from.untilEvent("a", event.ToolStarted)
	from.sh("a", "until [ -e /root/runs ]; do sleep 0.1; done")
	archive := from.export("a", api.ExportSession{})
	got := to.imports(archive, api.ImportSession{})
	if got.Status != "idle" || got.StopReason != "imported" {
		t.Errorf("%s, %s", got.Status, got.StopReason)
	}
	from.sh("a", "touch /root/go")
	from.wait("a", "done")
	to.restart()
	to.state("a", "suspended") // nobody wakes it by himself
	if _, err := to.svc.SendMessages(to.ctx(), "a", api.SendMessages{Messages: []api.Message{{Text: "again"}}}); err != nil {
		t.Fatal(err)
	}
	to.wait("a", "answered") // the turn that was open ends as interrupted first
	to.want(to.sh("a", "wc -l < /root/runs"), "1")
	finished := told[event.ToolFinishedData](to, "a", event.ToolFinished)
	if len(finished) != 1 || finished[0].Outcome != event.OutcomeInterrupted && finished[0].Outcome != event.OutcomeUnknown {
		t.Errorf("the call that was open: %+v", finished)
	}
	to.verified("a")
}

// TestArchiveOfAnotherBuild: the guest that runs in the memory is not the one that this build has, and comes along.
func TestArchiveOfAnotherBuild(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	guest, err := os.ReadFile(from.bins.Guest)
	if err != nil {
		t.Fatal(err)
	}
	from.bins.Guest = filepath.Join(t.TempDir(), "perdure-guest")
	if err := os.WriteFile(from.bins.Guest, append(guest, "another"...), 0o755); err != nil {
		t.Fatal(err)
	}
	from.restart()
	from.create("a", "")
	from.python("a", "x = 41")
	to.imports(from.export("a", api.ExportSession{}), api.ImportSession{})
	if s, err := to.svc.ResumeSession(to.ctx(), "a"); err != nil || len(s.ResumeReport.Devolved) > 0 {
		t.Fatalf("%+v, %v", s.ResumeReport, err)
	}
	to.want(to.python("a", "x"), "41")
	if _, err := to.svc.SuspendSession(to.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	to.want(to.python("a", "x"), "41")
}
