package service_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// manifest reads a checkpoint's manifest as it is stored.
func (w *world) manifest(ckpt string) checkpoint.Manifest {
	w.t.Helper()
	var m checkpoint.Manifest
	b, err := os.ReadFile(filepath.Join(w.dir, "checkpoints", ckpt, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// told returns the payloads of a session's events of one type.
func told[T any](w *world, ref string, typ event.Type) []T {
	w.t.Helper()
	var out []T
	sid := id.Session(w.get(ref).ID)
	for after := event.Seq(0); ; {
		page, err := w.db.Read(w.ctx(), sid, after, 500)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range page {
			if after = e.Seq; e.Type != typ {
				continue
			}
			d, err := event.DecodeData[T](e)
			if err != nil {
				w.t.Fatal(err)
			}
			out = append(out, d)
		}
		if len(page) < 500 {
			return out
		}
	}
}

// TestManifestNamesItsEnvironment: what the next machine must have is in each manifest.
func TestManifestNamesItsEnvironment(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	ck, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	env := w.manifest(ck.ID).Environment
	if env.Driver != "gvisor" || env.Version == "" || env.Arch == "" || env.Kernel == "" || env.Layers == "" || env.Guest == 0 || env.Image != "host" {
		t.Errorf("environment: %+v", env)
	}
	if env.CPU == nil || len(env.CPU.Features) < 10 || env.CPU.CacheLine == 0 {
		t.Fatalf("processor: %+v", env.CPU)
	}
	if !slices.Contains(env.CPU.Features, "sse2") {
		t.Errorf("features: %q", env.CPU.Features)
	}
}

// TestDevolve wakes a session on a machine that cannot take its memory. That is seen before anything is started, told in the log, in the
// resume report and with the session, and names what ran.
func TestDevolve(t *testing.T) {
	for code, machine := range map[string]func(*sandbox.Capabilities){
		event.LostToEngine: func(c *sandbox.Capabilities) { c.Version = "v9.9.9" },
		event.LostToCPU: func(c *sandbox.Capabilities) {
			less := slices.DeleteFunc(slices.Clone(c.CPU.Features), func(f string) bool { return f == "sse2" || f == "fpu" })
			c.CPU = &sandbox.CPU{Features: less, CacheLine: c.CPU.CacheLine}
		},
	} {
		t.Run(code, func(t *testing.T) {
			w := newWorld(t)
			w.create("a", "")
			w.sh("a", "echo kept > /root/file")
			x := w.start("a", api.StartExec{Argv: []string{"sleep", "1000"}, Label: "the server", Background: true})
			if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
				t.Fatal(err)
			}
			w.close()
			restored := false
			w.machine = func(c *sandbox.Capabilities) { machine(c) }
			w.step = func(point string) { restored = restored || point == "sandbox.booted" }
			w.open()
			forks, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Checkpoint: w.get("a").Workspace.CheckpointID})
			if err != nil {
				t.Fatal(err)
			}
			s, err := w.svc.ResumeSession(w.ctx(), "a")
			if err != nil {
				t.Fatal(err)
			}
			check := func(s api.Session) {
				t.Helper()
				r := s.ResumeReport
				if r == nil || len(r.Devolved) != 1 || slices.Contains(r.Layers, "memory") || !slices.Contains(r.Layers, "files") {
					t.Fatalf("report: %+v", r)
				}
				d := r.Devolved[0]
				if d.Layer != "memory" || d.Code != code || d.Reason == "" || len(d.Commands) != 1 || d.Commands[0].ExecID != x.ID || d.Commands[0].Label != "the server" {
					t.Errorf("devolved: %+v", d)
				}
				events := told[event.WorkspaceDevolvedData](w, s.ID, event.WorkspaceDevolved)
				if len(events) != 1 || events[0].Code != code || len(events[0].Commands) != 1 {
					t.Errorf("events: %+v", events)
				}
				w.want(w.sh(s.ID, "cat /root/file"), "kept")
			}
			check(s)
			check(w.get("a"))
			check(forks.Data[0])
			if !restored {
				t.Error("nothing was booted")
			}
		})
	}
}

// TestMoreFeaturesAreFine: an image goes to a processor that has all that it wants, and more.
func TestMoreFeaturesAreFine(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	w.python("a", "x = 41")
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.machine = func(c *sandbox.Capabilities) {
		c.CPU = &sandbox.CPU{Features: append(slices.Clone(c.CPU.Features), "zz_more"), CacheLine: c.CPU.CacheLine}
	}
	w.open()
	w.want(w.python("a", "x"), "41")
}
