package engine

import (
	"os/exec"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
	goferconfig "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

// The filters are part of the sandbox's wall: they must be those of the very gVisor that is linked in.
func TestFiltersBelongToThePinnedVersion(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	if pinned := strings.TrimSpace(string(out)); pinned != filtersVersion {
		t.Fatalf("the filters are of %s, and gVisor is %s: run go generate in this directory", filtersVersion, pinned)
	}
}

func TestFiltersAreFoundForOurOptions(t *testing.T) {
	installFilters()
	opt := config.Options{Platform: (&systrap.Systrap{}).SeccompInfo(), HostFilesystem: true}
	// The test itself is built with cgo; the engine is not.
	key := strings.Replace(opt.ConfigKey(), "Instrumentation=true", "Instrumentation=false", 1)
	program, ok := filter.GetPrecompiled(key)
	if !ok {
		t.Fatalf("none for %s among %q", key, filter.ListPrecompiled())
	}
	if _, err := program.RenderInstructions(opt.Vars()); err != nil {
		t.Fatalf("cannot be rendered: %v", err)
	}
}

func TestFileServersFiltersAreFoundForOurOptions(t *testing.T) {
	installFilters()
	for _, lisafs := range []bool{false, true} {
		opt := goferconfig.Options{UDSOpenEnabled: true, DirectFS: true, LisafsNeeded: lisafs}
		key := strings.Replace(opt.ConfigKey(), "Instrumentation=true", "Instrumentation=false", 1)
		program, ok := gofer.GetPrecompiled(key)
		if !ok {
			t.Fatalf("none for %s among %q", key, gofer.ListPrecompiled())
		}
		if _, err := program.RenderInstructions(opt.Vars()); err != nil {
			t.Fatalf("cannot be rendered: %v", err)
		}
	}
}
