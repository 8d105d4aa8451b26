package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"perdure.dev/perdure/api"
)

// cell is a size of a session.
type cell struct {
	ramMB  int // touched by a process inside, random bytes
	files  int // of 1 KiB each
	repeat int
	forks  []int // at a time, besides 1
}

func (c cell) String() string { return fmt.Sprintf("%d MB of RAM, %d files", c.ramMB, c.files) }

const (
	checkpointTime   = "checkpoint, all of it"
	checkpointPause  = "checkpoint: the workspace stands still"
	suspendTime      = "suspend"
	resumeAnswered   = "resume → first command answered"
	forkAnswered     = "fork ×1 → answered"
	rollbackAnswered = "rollback → answered"
	copyTime         = "copying the files (part of stock's fork and rollback)"
)

// background is the stock command line with pages loaded while the program runs.
const background = "stock -background"

// cells measures what depends on how much a session holds.
func (x *bench) cells(b *testing.B) {
	list := []cell{
		{16, 1000, 5, []int{4, 16}}, {16, 20000, 3, nil}, {256, 1000, 2, []int{4, 16}}, {1024, 1000, 2, nil},
	}
	if x.quick {
		list = []cell{{16, 1000, 2, []int{4}}}
	}
	for i, c := range list {
		b.Run(fmt.Sprintf("%dMB-%d", c.ramMB, c.files), func(b *testing.B) {
			x.cell(b, c, filepath.Join(x.dir, fmt.Sprint("cell", i)))
			b.ReportMetric(0, "ns/op")
		})
		x.keep(b)
	}
}

// holdCode fills RAM and disk, in either variant's Python, and says so in a file.
const holdCode = `
import os
held = bytearray().join(os.urandom(1 << 20) for _ in range(%d))
for i in range(%d):
    if i %% 500 == 0:
        d = "/root/work/%%d" %% (i // 500); os.makedirs(d)
    with open("%%s/f%%d" %% (d, i), "wb") as f: f.write(held[i %% 900:i %% 900 + 1024])
open("/root/ready", "w").close()
`

func (c cell) hold() string { return fmt.Sprintf(holdCode, c.ramMB, c.files) }

// churn changes a little RAM and a few files, so that a checkpoint has something to save.
const churn = "echo $RANDOM >> /root/work/0/f0"

func (x *bench) cell(b *testing.B, c cell, dir string) {
	g := c.String()
	d := x.serve(b, dir)
	s := d.create()
	d.run(b, s.ID, api.StartExec{Kind: "python", Code: c.hold()})
	e := x.stock(b, d.dir, "/usr/bin/python3", "-c", c.hold()+"\nimport time\nwhile True: time.sleep(1000)")
	k := e.prepare("")
	k.boot()
	eventually(b, "stock is ready", func() bool { _, err := os.Stat(filepath.Join(k.upper, "root/ready")); return err == nil })
	var point string // the checkpoint that forks and rollbacks go to
	for range c.repeat {
		point = x.ours(b, d, g, s.ID)
		k = x.theirs(b, k, g)
	}
	for _, n := range c.forks {
		for range 1 + 4/n {
			name := fmt.Sprintf("fork ×%d → each answered", n)
			var made []api.Session
			x.time(g, name, perdure, func() { made = d.fork(b, s.ID, point, n) })
			d.delete(b, made...)
			k = x.theirForks(b, k, g, name, n)
		}
	}
}

// ours measures a round of Perdure.
func (x *bench) ours(b *testing.B, d *daemon, g, s string) string {
	b.Helper()
	d.run(b, s, api.StartExec{Kind: "shell", Code: churn})
	var ck api.Checkpoint
	var err error
	x.time(g, checkpointTime, perdure, func() { ck, err = d.CreateCheckpoint(b.Context(), s, api.CreateCheckpoint{}); must(b, err) })
	x.add(g, checkpointPause, perdure, "ms", ck.PauseMS)
	d.durable(b, ck.ID)
	var made []api.Session
	x.time(g, forkAnswered, perdure, func() { made = d.fork(b, s, ck.ID, 1) })
	d.delete(b, made...)
	d.run(b, s, api.StartExec{Kind: "shell", Code: churn})
	var plan api.RollbackPlan
	x.time(g, rollbackAnswered, perdure, func() {
		plan, err = d.RollbackSession(b.Context(), s, api.RollbackSession{Checkpoint: ck.ID})
		must(b, err)
		d.answer(b, s)
	})
	d.durable(b, plan.UndoCheckpointID)
	var now api.Session
	x.time(g, suspendTime, perdure, func() { now, err = d.SuspendSession(b.Context(), s); must(b, err) })
	d.durable(b, now.Workspace.CheckpointID)
	x.time(g, resumeAnswered, perdure, func() {
		_, err := d.ResumeSession(b.Context(), s)
		must(b, err)
		d.answer(b, s)
	})
	x.phases(b, d, g, s)
	return ck.ID
}

// phases adds where the last start of a session's sandbox spent its time, as its shim has logged it.
func (x *bench) phases(b *testing.B, d *daemon, g, s string) {
	b.Helper()
	now, err := d.Session(b.Context(), s)
	must(b, err)
	log, err := os.ReadFile(filepath.Join(d.dir, "run", now.Workspace.SandboxID, "shim.log"))
	must(b, err)
	for _, p := range []struct{ field, name string }{
		{"create", "of a resume: making the sandbox's processes"}, {"boot", "of a resume: loading the kernel's state"},
		{"guest", "of a resume: the guest dials again"}, {"report", "of a resume: reseeding and the report"},
	} {
		found := regexp.MustCompile(`\b` + p.field + `=([0-9.]+[a-zµ]+)`).FindSubmatch(log)
		if found == nil {
			b.Fatalf("the shim's log does not tell %q:\n%s", p.field, log)
		}
		took, err := time.ParseDuration(string(found[1]))
		must(b, err)
		x.add(g, p.name, perdure, "ms", milliseconds(took))
	}
}

// theirs measures the same round of the stock command line, and returns the container that goes on.
func (x *bench) theirs(b *testing.B, k *container, g string) *container {
	b.Helper()
	e := k.e
	e.call("exec", k.id, "/bin/bash", "-c", churn)
	var image, kept string
	x.time(g, checkpointTime, stock, func() { image = k.checkpoint(true) })
	// A checkpoint must keep the files of its moment, and stock has no layers: they are copied.
	x.time(g, copyTime, files, func() { kept = k.copyFiles() })
	fork := func(variant string, bg bool) {
		var f *container
		x.time(g, forkAnswered, variant, func() {
			f = e.prepare(k.copyFiles())
			f.restore(image, bg)
			f.answer()
		})
		f.cleanup()
		must(b, os.RemoveAll(f.upper))
	}
	fork(stock, false)
	fork(background, true)
	e.call("exec", k.id, "/bin/bash", "-c", churn)
	// As ours: what was before stays, then the files and the memory of the checkpoint come back.
	var back *container
	x.time(g, rollbackAnswered, stock, func() {
		before := k.checkpoint(false)
		k.delete()
		from := &container{e: e, upper: kept}
		back = e.prepare(from.copyFiles())
		back.restore(image, false)
		back.answer()
		b.Cleanup(func() { must(b, os.RemoveAll(before)) })
	})
	k.cleanup()
	must(b, os.RemoveAll(kept))
	must(b, os.RemoveAll(image))
	x.time(g, suspendTime, stock, func() {
		image = back.checkpoint(false)
		back.delete()
	})
	var now *container
	for _, v := range []struct {
		variant string
		bg      bool
	}{{background, true}, {stock, false}} {
		x.time(g, resumeAnswered, v.variant, func() {
			now = e.prepare(back.upper)
			now.restore(image, v.bg)
			now.answer()
		})
		if v.bg {
			now.cleanup()
		}
	}
	must(b, os.RemoveAll(image))
	return now
}

// theirForks makes forks one after the other, the way a script does.
func (x *bench) theirForks(b *testing.B, k *container, g, name string, n int) *container {
	b.Helper()
	image := k.checkpoint(true)
	made := make([]*container, n)
	x.time(g, name, stock, func() {
		for i := range made {
			made[i] = k.e.prepare(k.copyFiles())
			made[i].restore(image, false)
			made[i].answer()
		}
	})
	for _, f := range made {
		f.cleanup()
		must(b, os.RemoveAll(f.upper))
	}
	must(b, os.RemoveAll(image))
	return k
}
