package gvisor_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/sandboxtest"
)

// TestS3_FileServerOfARestoredSandboxKilled kills each process of a restored sandbox, one that serves its files among them. A sandbox that
// goes on without files finds no command and saves nothing, so it has to be known as dead.
func TestS3_FileServerOfARestoredSandboxKilled(t *testing.T) {
	bin := sandboxtest.Build(t)
	driver := gvisor.New(gvisor.Options{Engine: bin.Engine, Guest: bin.Guest, Cache: t.TempDir()})
	if caps := driver.Capabilities(t.Context()); !caps.Available {
		t.Skipf("gVisor cannot run here: %v", caps.Missing)
	}
	dir := t.TempDir()
	mkdir := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	spec := func() sandbox.Spec {
		sid := id.NewSandbox()
		return sandbox.Spec{
			ID: sid, Session: "sess_a", StateDir: mkdir(string(sid)), SpoolDir: mkdir("spool"), Hostname: "a",
			Root: sandbox.Root{Image: "host", Upper: mkdir("upper"), Work: mkdir("work-" + string(sid))},
		}
	}
	end := func(s sandbox.Sandbox) {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	s, err := driver.Start(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	warm, err := s.Checkpoint(t.Context(), sandbox.CheckpointRequest{Dir: mkdir("image")})
	end(s)
	if err != nil {
		t.Fatal(err)
	}
	var killed []string
	for range 3 {
		s, err := driver.Restore(t.Context(), spec(), warm.Image())
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range st.PIDs {
			text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(string(text), "\x00")
			if slices.Contains(killed, name) {
				continue
			}
			killed = append(killed, name)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if st, err := s.Wait(t.Context()); err != nil || st.State != sandbox.Dead || st.Cause == "" {
				t.Errorf("%s killed: %+v, %v", name, st, err)
			}
			break
		}
		end(s)
	}
	if !slices.Contains(killed, "runsc-gofer") || len(killed) != 3 {
		t.Errorf("killed: %q", killed)
	}
}
