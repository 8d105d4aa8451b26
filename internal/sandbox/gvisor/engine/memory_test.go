package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// group is a control group's directory with the files that the guard reads and writes. The kernel has only one version at a time; the
// conformance suite tests with that one.
type group struct {
	t   *testing.T
	dir string
	v2  bool
}

func newGroup(t *testing.T, v2 bool) group {
	g := group{t, t.TempDir(), v2}
	if v2 {
		g.write("memory.max", "max")
		g.write("memory.high", "max")
	} else {
		g.write("memory.limit_in_bytes", "1")
		g.write("memory.oom_control", "0")
	}
	return g
}

func (g group) write(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func (g group) read(name string) string {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		g.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// use says what the group holds, in MiB: the workspace's memory, gVisor's own, and what the kernel has cached.
func (g group) use(shared, own, cached int64) {
	const mib = 1 << 20
	total := (shared + own + cached) * mib
	if g.v2 {
		g.write("memory.current", fmt.Sprint(total))
		g.write("memory.stat", fmt.Sprintf("anon %d\nfile %d\nkernel %d\nshmem %d\n", (own-1)*mib, cached*mib, mib, shared*mib))
		return
	}
	g.write("memory.usage_in_bytes", fmt.Sprint(total))
	g.write("memory.kmem.usage_in_bytes", fmt.Sprint(mib))
	g.write("memory.stat", fmt.Sprintf("cache %d\nrss %d\nshmem %d\n", (cached+shared)*mib, (own-1)*mib, shared*mib))
}

func TestMemoryGuard(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v2=%v", v2), func(t *testing.T) {
			files := newGroup(t, v2)
			found, err := findMemoryGroup([]string{t.TempDir(), files.dir})
			if err != nil || found.v2 != v2 {
				t.Fatalf("%+v, %v", found, err)
			}
			const limit = 256 << 20
			g := &memoryGuard{group: found, limit: limit, ceiling: limit + overhead + reserve, log: slog.New(slog.DiscardHandler)}
			kills := 0
			relieve := func(context.Context, int64) (bool, error) {
				kills++
				files.use(20, 30, 0)
				return true, nil
			}
			for _, c := range []struct {
				what                string
				shared, own, cached int64
				kills               int
			}{
				{"little", 20, 30, 0, 0},
				{"a full cache", 20, 30, 380, 0},
				{"all but the limit", 255, 40, 100, 0},
				{"more than the limit", 257, 20, 0, 1},
				{"much that gVisor holds for it", 150, 180, 0, 1},
			} {
				kills = 0
				files.use(c.shared, c.own, c.cached)
				wait, err := g.look(t.Context(), relieve)
				if err != nil || kills != c.kills || wait < lookMin || wait > lookMax {
					t.Errorf("%s: %d killed, wait %v, %v", c.what, kills, wait, err)
				}
			}
		})
	}
}

// Whoever waits at the control group's limit gets room for as long as it takes; and if nothing can be ended, the kernel may kill.
func TestMemoryGuardOfStuckProcesses(t *testing.T) {
	files := newGroup(t, false)
	const limit = 1 << 30 // so that all numbers have as many digits: a file is longer than what the kernel takes
	g := &memoryGuard{group: memoryGroup{dir: files.dir}, limit: limit, ceiling: limit + overhead + reserve, log: slog.New(slog.DiscardHandler)}
	files.use(1500, 30, 0)
	files.write("memory.oom_control", "oom_kill_disable 1\nunder_oom 1\noom_kill 0\n")
	_, err := g.look(t.Context(), func(context.Context, int64) (bool, error) {
		if got := files.read("memory.limit_in_bytes"); got != fmt.Sprint(g.ceiling+reserve) {
			t.Errorf("the limit is %s while a process is ended", got)
		}
		files.use(20, 30, 0)
		return true, nil
	})
	if got := files.read("memory.limit_in_bytes"); err != nil || got != fmt.Sprint(g.ceiling) {
		t.Errorf("the limit is %s afterwards, %v", got, err)
	}
	files.use(1500, 30, 0)
	for range maxFailed {
		if got := files.read("memory.oom_control"); !strings.HasPrefix(got, "oom_kill_disable 1") {
			t.Error("the kernel may kill already")
		}
		if _, err := g.look(t.Context(), func(context.Context, int64) (bool, error) { return false, errors.New("no answer") }); err != nil {
			t.Error(err)
		}
	}
	if got := files.read("memory.oom_control"); !strings.HasPrefix(got, "0") { // a file is longer than what the kernel takes
		t.Errorf("memory.oom_control is %q", got)
	}
}
