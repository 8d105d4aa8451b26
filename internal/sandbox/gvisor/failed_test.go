package gvisor_test

import (
	"strings"
	"testing"

	"perdure.dev/perdure/internal/sandbox/shim"
)

// TestL1_FailedStartLeavesNoControlGroup gives a sandbox so little memory that the kernel kills the shim while it makes it, so that nobody
// in there can clean up.
func TestL1_FailedStartLeavesNoControlGroup(t *testing.T) {
	r := newRig(t)
	for _, m := range r.Capabilities(t.Context()).Missing {
		if strings.HasPrefix(m, "limits") {
			t.Skip(m)
		}
	}
	spec := r.spec()
	spec.Limits.MemoryBytes = 1
	if s, err := r.Start(t.Context(), spec); err == nil {
		t.Errorf("it started")
		r.end(s)
	}
	if left := shim.Cgroups(spec.ID); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
