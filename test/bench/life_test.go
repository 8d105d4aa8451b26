package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
)

const (
	groupLife      = "Life of a session"
	createAnswered = "create → first command answered"
	processCommand = "command that is a new process"
	shellCommand   = "command of the persistent shell, no process"
	pythonCommand  = "command of the persistent Python"
	forkExecInside = "fork + exec + wait, measured inside"
	pipeInside     = "a byte to another process and back, measured inside"
	hopDaemon      = "a question to the daemon alone"
	hopShim        = "a question that its shim answers"
	hopGuest       = "a question that the guest inside answers"
)

// life measures a small session from its creation to a pause.
func (x *bench) life(b *testing.B) {
	d := x.serve(b, filepath.Join(x.dir, "life"))
	d.answer(b, d.create().ID) // makes the base
	e := x.stock(b, d.dir, "/bin/sleep", "100000")
	var s api.Session
	var c *container
	for range x.times(7, 2) {
		x.time(groupLife, createAnswered, perdure, func() { s = d.create(); d.answer(b, s.ID) })
		x.time(groupLife, createAnswered, stock, func() {
			c = e.prepare("")
			c.boot()
			c.answer()
		})
	}
	d.run(b, s.ID, api.StartExec{Kind: "shell", Code: "true"})
	d.run(b, s.ID, api.StartExec{Kind: "python", Code: "1"})
	helper, err := os.Open(x.inside)
	must(b, err)
	defer helper.Close()
	must(b, d.WriteFile(b.Context(), s.ID, "/root/inside", 0o755, helper))
	known, err := d.StartExec(b.Context(), s.ID, api.StartExec{Argv: []string{"/bin/true"}, Wait: true})
	must(b, err)
	last := known.ID
	// In rounds, so that every measure meets the same moments of the machine.
	for range x.times(10, 2) {
		for range x.times(30, 10) {
			x.time(groupLife, shellCommand, perdure, func() { d.run(b, s.ID, api.StartExec{Kind: "shell", Code: "true"}) })
		}
		for range x.times(15, 5) {
			x.time(groupLife, pythonCommand, perdure, func() { d.run(b, s.ID, api.StartExec{Kind: "python", Code: "1"}) })
		}
		for range x.times(15, 5) {
			x.time(groupLife, processCommand, perdure, func() { d.answer(b, s.ID) })
		}
		x.within(b, d, s.ID, forkExecInside, "spawn", 15)
		x.within(b, d, s.ID, pipeInside, "pipe", 30)
		for range x.times(30, 10) {
			x.time(groupLife, hopDaemon, perdure, func() { _, err := d.Health(b.Context()); must(b, err) })
			x.time(groupLife, hopShim, perdure, func() { _, err := d.Exec(b.Context(), s.ID, last); must(b, err) })
			x.time(groupLife, hopGuest, perdure, func() { _, err := d.StatFile(b.Context(), s.ID, "/root"); must(b, err) })
		}
		for range x.times(3, 2) {
			x.time(groupLife, processCommand, stock, c.answer)
		}
	}
	for range x.times(10, 3) {
		x.time(groupLife, "pause", perdure, func() { _, err := d.PauseSession(b.Context(), s.ID); must(b, err) })
		x.time(groupLife, "pause", stock, func() { e.call("pause", c.id) })
		x.time(groupLife, "unpause", perdure, func() { _, err := d.ResumeSession(b.Context(), s.ID); must(b, err) })
		x.time(groupLife, "unpause", stock, func() { e.call("resume", c.id) })
	}
	x.time(groupLife, "delete a running session", perdure, func() { d.delete(b, s) })
	x.time(groupLife, "delete a running session", stock, c.delete)
}

// within adds what the helper measures in a sandbox.
func (x *bench) within(b *testing.B, d *daemon, s, name, what string, count int) {
	b.Helper()
	for l := range strings.Lines(d.run(b, s, api.StartExec{Argv: []string{"/root/inside", what, strconv.Itoa(count)}})) {
		ns, err := strconv.ParseFloat(strings.TrimSpace(l), 64)
		must(b, err)
		x.add(groupLife, name, perdure, "ms", ns/1e6)
	}
}
