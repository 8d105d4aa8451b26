package engine

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

//go:generate env CGO_ENABLED=0 go run ./filtergen

// gvisorFilters is the table from which gVisor takes compiled system call filters. Its own build fills it; a build as a Go module
// leaves it empty, and compiles the same filters at each boot, for up to half a second.
//
//go:linkname gvisorFilters gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var gvisorFilters map[string]precompiledseccomp.Program

// goferFilters is the same for the file server.
//
//go:linkname goferFilters gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferFilters map[string]precompiledseccomp.Program

// installFilters fills the tables. A filter for other options than ours is still compiled at boot.
func installFilters() {
	filter.ListPrecompiled() // makes the table, which would empty it later
	gofer.ListPrecompiled()
	for _, p := range compiledFilters() {
		gvisorFilters[p.Name] = p
	}
	for _, p := range compiledGoferFilters() {
		goferFilters[p.Name] = p
	}
}
