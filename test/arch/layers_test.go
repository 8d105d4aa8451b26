package arch

import (
	"strings"
	"testing"
)

// layers gives each package its level; the longest prefix counts. Imports only point to a lower level, so that what a package is
// built on can be read, tested and replaced without it. Equal levels may not import each other, but for packages of one tree,
// which are one thing in several parts.
var layers = map[string]int{
	"api":              1,
	"internal/errdefs": 0, "internal/clock": 0, "internal/id": 0, "internal/actor": 1,

	"internal/archive": 1,
	"internal/idle":    2,

	"client":         2,
	"internal/event": 2, "internal/sandbox": 2, "internal/snapshot": 2, "internal/layer": 2, "internal/egress": 2, "internal/guest/wire": 2,
	"internal/guest":           3,
	"internal/sandbox/shim":    4,
	"internal/sandbox/process": 5, "internal/sandbox/gvisor": 6,
	"internal/model": 3, "internal/session": 3, "internal/workspace": 3,
	"internal/checkpoint": 4, "internal/image": 4, "internal/store": 4, "internal/tool": 4,
	"internal/agent": 5, "internal/portable": 5,
	"internal/service": 6,
	"internal/server":  7,
	"internal/daemon":  8,
	"internal/cli":     9,
	"examples":         0,
	"cmd":              10,
	"test":             10,
}

func level(pkg string) (int, bool) {
	for p := pkg; ; {
		if l, ok := layers[p]; ok {
			return l, true
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return 0, false
		}
		p = p[:i]
	}
}

// tree is the part of a path that names one thing: internal/NAME, or the first segment elsewhere.
func tree(pkg string) string {
	parts := strings.Split(pkg, "/")
	if parts[0] == "internal" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		from, ok := level(p.name)
		if !ok {
			t.Errorf("%s has no level: put it into layers, where it belongs", p.name)
			continue
		}
		for _, imp := range p.imports {
			to, ok := level(imp)
			if !ok || tree(imp) == tree(p.name) {
				continue
			}
			if to >= from {
				t.Errorf("%s (level %d) imports %s (level %d): imports only point to a lower level", p.name, from, imp, to)
			}
		}
	}
}

// implementations are imported by those that wire things together, and by nobody else: everybody else knows the interface.
var implementations = map[string][]string{
	"internal/snapshot/disk":         {"internal/daemon"},
	"internal/image/oci":             {"internal/daemon"},
	"internal/store/sqlite":          {"internal/daemon"},
	"internal/sandbox/gvisor":        {"internal/daemon"},
	"internal/sandbox/process":       {"internal/daemon", "internal/sandbox/gvisor/engine"},
	"internal/sandbox/gvisor/engine": {"cmd/perdure-engine"},
	"internal/egress/gateway":        {"internal/sandbox/gvisor/engine"},
	"internal/model/openai":          {"internal/daemon"},
	"internal/model/anthropic":       {"internal/daemon"},
	"internal/model/scripted":        {"internal/daemon"},
	"internal/daemon":                {"cmd/perdure"},
}

func TestOnlyTheWiringImportsImplementations(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.imports {
			allowed, isImpl := implementations[imp]
			if isImpl && !contains(allowed, p.name) && !strings.HasPrefix(p.name, "test/") {
				t.Errorf("%s imports the implementation %s; only %v may", p.name, imp, allowed)
			}
		}
	}
}

// forbidden says what must not become part of a binary, and why.
var forbidden = []struct{ binary, prefix, why string }{
	{"cmd/perdure", "gvisor.dev/", "the command line must start in a few milliseconds; the engine is a binary of its own"},
	{"cmd/perdure-guest", "gvisor.dev/", "the guest is copied into every sandbox"},
	{"cmd/perdure-guest", "net/http", "the guest is copied into every sandbox"},
	{"cmd/perdure-guest", "github.com/", "the guest is the standard library and the wire protocol"},
	{"cmd/perdure-engine", "modernc.org/", "shims must not depend on the store: they survive upgrades of the daemon"},
	{"internal/service", "net/http", "use cases know no transport"},
	{"internal/service", "database/sql", "use cases know no SQL"},
	{"internal/agent", "net/http", "the loop knows providers, not transports"},
}

func TestForbiddenDependencies(t *testing.T) {
	for _, f := range forbidden {
		direct := strings.HasPrefix(f.binary, "internal/")
		for _, dep := range depsOf(t, f.binary, direct) {
			if strings.HasPrefix(dep, f.prefix) {
				t.Errorf("%s depends on %s: %s", f.binary, dep, f.why)
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
