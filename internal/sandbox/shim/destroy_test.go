package shim

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/sandbox"
)

// TestL1_DestroyEndsAShimWhoseGuestNeverAnswers ends a restored sandbox whose daemon died while the guest was waited for. A guest that
// stands still must not keep the next daemon from its start; and a restore that does not succeed loses nothing.
func TestL1_DestroyEndsAShimWhoseGuestNeverAnswers(t *testing.T) {
	spoolDir, state := spoolWithRunning(t), t.TempDir()
	lock, err := openLock(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	run := func(files ...*os.File) (Process, chan struct{}) {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		cmd.ExtraFiles = files
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		p, err := ProcessOf("", cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return p, ended
	}
	shim, shimEnded := run(lock)
	lock.Close()
	kernel, kernelEnded := run()
	cfg := Config{Spec: sandbox.Spec{SpoolDir: spoolDir}, Image: &sandbox.Image{}}
	if err := writeJSON(state+"/"+configFile, cfg); err != nil {
		t.Fatal(err)
	}
	if err := writeRecord(state, Record{Shim: shim, SpoolDir: spoolDir, Running: Running{Processes: []Process{kernel}}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := newClient(state, cfg).Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	<-shimEnded
	<-kernelEnded
	if got := stored(t, spoolDir); got != sandbox.ExecRunning {
		t.Errorf("a command of the checkpoint is %s", got)
	}
}
