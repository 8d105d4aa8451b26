package gvisor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/internal/sandbox"
)

// TestS3_FileServerOfARestoredSandboxKilled kills each process of a restored sandbox, one that serves its files among them. A sandbox that
// goes on without files finds no command and saves nothing, so it has to be known as dead.
func TestS3_FileServerOfARestoredSandboxKilled(t *testing.T) {
	r := newRig(t)
	s, err := r.Start(t.Context(), r.spec())
	if err != nil {
		t.Fatal(err)
	}
	warm, err := s.Checkpoint(t.Context(), sandbox.CheckpointRequest{Dir: r.mkdir("image")})
	r.end(s)
	if err != nil {
		t.Fatal(err)
	}
	var killed []string
	for range 3 {
		s, err := r.Restore(t.Context(), r.spec(), warm.Image())
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
		r.end(s)
	}
	if !slices.Contains(killed, "runsc-gofer") || len(killed) != 3 {
		t.Errorf("killed: %q", killed)
	}
}
