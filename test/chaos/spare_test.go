package chaos

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// spares lists the directories of sandboxes that have been made ahead of need.
func (w *world) spares() []string {
	var names []string
	for _, e := range w.entries("cache") {
		if strings.HasPrefix(e, "spare-") {
			names = append(names, e)
		}
	}
	return names
}

// awaitSpare waits until the daemon has a spare sandbox, whole, and returns its processes.
func (w *world) awaitSpare() (pids []int) {
	w.t.Helper()
	until(w.t, "a spare sandbox", func() error {
		pids = nil
		booted := false
		for pid, sb := range w.processes() {
			if sb == spare {
				pids = append(pids, pid)
				args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				booted = booted || err == nil && strings.Contains(string(args), "\x00boot\x00")
			}
		}
		if !booted {
			return errors.New("there is none")
		}
		return nil
	})
	return pids
}

func (w *world) noSpare() {
	w.t.Helper()
	within(w.t, deathIn, "the spare is gone", func() error {
		for pid, sb := range w.processes() {
			if sb == spare {
				return fmt.Errorf("L1: process %d of a spare sandbox has outlived its daemon", pid)
			}
		}
		if spares := w.spares(); len(spares) > 0 {
			return fmt.Errorf("L1: left behind: %v", spares)
		}
		return nil
	})
}

// TestL1_SpareEndsWithItsDaemon ends the daemon by force and in order: the sandbox that it keeps ready goes too, the session's does not.
func TestL1_SpareEndsWithItsDaemon(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	n := w.awake(one)
	w.awaitSpare()
	w.kill()
	w.noSpare()
	w.up()
	w.answered(one)
	w.has(one, n)
	suspend(w)
	w.awake(one) // wakes it, after which there is a spare again
	w.awaitSpare()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil || !w.fell(patience) {
		t.Fatalf("the daemon does not stop when asked to: %v", err)
	}
	w.noSpare()
	w.up()
	w.intact()
}

// TestL1_SpareKilled kills each process of the spare in turn: the next start does without, and nothing is left of it.
func TestL1_SpareKilled(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	for i := range 3 {
		w.awake(one)
		pids := w.awaitSpare()
		slices.Sort(pids) // the shim, the gofer, the sandbox, and what that has started
		if err := syscall.Kill(pids[i], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		suspend(w)
		w.awake(one)
		w.answered(one)
		w.intact()
	}
}
