package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// A limit on memory is kept from outside the sandbox by looking, and inside it by ending the largest process. The kernel's own answer, to
// kill a process of the control group, would end the sandbox: gVisor cannot lose one of its processes. So the control group's limit
// stands above the workspace's, by what gVisor needs itself and by what may come between two looks:
//
//	0 ────── workspace's memory ────── limit ── overhead ── reserve ── the control group's limit
//	                                     └ from here on processes are ended
//
// Where the kernel can (v1), it makes whoever hits the control group's limit wait instead of killing him; the limit is then lifted for as
// long as it takes to end a process.
const (
	overhead = 64 << 20  // bytes that gVisor may hold for itself: its heap, its processes, page tables
	reserve  = 512 << 20 // bytes that may be taken between two looks, and while a process is being ended, on a busy machine by several programs
	fillRate = 4 << 30   // bytes that the fastest program touches in a second
)

// The looks come as often as it would take the fastest program to fill what is left, within these bounds.
const (
	lookMin = 5 * time.Millisecond
	lookMax = 500 * time.Millisecond
)

// maxFailed is how often in a row nothing may be found to end before the kernel is left to kill the sandbox.
const maxFailed = 5

// relieveTime is how long the guest may take to end a process.
const relieveTime = 10 * time.Second

// memoryGuard watches one control group.
type memoryGuard struct {
	group   memoryGroup
	limit   int64 // bytes of the workspace
	ceiling int64 // the control group's limit
	failed  int   // how often in a row nothing could be ended
	log     *slog.Logger
}

// openMemory makes the control group's limit what it is to be. Until then it was the workspace's, from which gVisor takes what it shows
// inside as the machine's memory.
func (e *Engine) openMemory() {
	limit := e.cfg.Spec.Limits.MemoryBytes
	if limit <= 0 {
		return
	}
	g := &memoryGuard{limit: limit, ceiling: limit + overhead + reserve, log: e.log}
	var err error
	if g.group, err = findMemoryGroup(e.running.Cgroups); err == nil {
		err = g.group.raise(g.ceiling)
	}
	if err != nil {
		e.running.Missing = append(e.running.Missing, "memory limit: the sandbox dies at it: "+err.Error())
		return
	}
	e.memory = g
}

// Guard implements shim.Engine.
func (e *Engine) Guard(ctx context.Context, relieve shim.Relieve) {
	g := e.memory
	if g == nil {
		return
	}
	if err := g.group.hold(true); err != nil {
		e.log.Debug("the kernel kills at the control group's limit", "error", err)
	}
	for ctx.Err() == nil {
		wait, err := g.look(ctx, relieve)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) { // the sandbox has ended
				e.log.Error("cannot watch the memory", "error", err)
			}
			return
		}
		if (clock.System{}).Sleep(ctx, wait) != nil {
			return
		}
	}
}

// look measures, ends a process if there is need, and returns when to look again.
func (g *memoryGuard) look(ctx context.Context, relieve shim.Relieve) (time.Duration, error) {
	charged, err := g.group.charged()
	if err != nil {
		return 0, err
	}
	if charged < g.limit { // files in the kernel's cache included, so no more can be said against it
		return pace(g.ceiling - charged), nil
	}
	used, err := g.group.used()
	if err != nil {
		return 0, err
	}
	if used.over(g.limit) <= 0 {
		return pace(g.ceiling - used.total()), nil
	}
	stuck := g.group.stuck()
	if stuck {
		if err := g.group.raise(g.ceiling + reserve); err != nil {
			return 0, err
		}
	}
	rctx, cancel := context.WithTimeout(ctx, relieveTime)
	defer cancel()
	ended, err := relieve(rctx, g.limit)
	if err != nil || !ended {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		g.failed++
		g.log.Warn("nothing could be ended to relieve the memory", "used", used.total(), "limit", g.limit, "error", err)
		if stuck && g.failed >= maxFailed { // rather dead than stuck for ever
			return lookMax, g.group.hold(false)
		}
		return lookMax, nil
	}
	g.failed = 0
	if err := g.await(ctx); err != nil {
		return 0, err
	}
	if stuck {
		return lookMin, g.group.raise(g.ceiling)
	}
	return lookMin, nil
}

// await returns when the memory of what was ended is free, which gVisor sees to in the background, or somebody else takes more.
func (g *memoryGuard) await(ctx context.Context) error {
	const (
		step     = 5 * time.Millisecond
		patience = time.Second // without a change for the better
		growth   = 8 << 20     // bytes that tell that another program takes more
	)
	least, since := int64(0), time.Time{}
	for {
		used, err := g.group.used()
		if err != nil {
			return err
		}
		over, now := used.over(g.limit), clock.System{}.Now()
		switch {
		case over <= 0, !since.IsZero() && (over > least+growth || now.Sub(since) > patience):
			return nil
		case since.IsZero() || over < least:
			least, since = over, now
		}
		if err := (clock.System{}).Sleep(ctx, step); err != nil {
			return err
		}
	}
}

// pace returns how long the fastest program takes to fill left bytes.
func pace(left int64) time.Duration {
	d := time.Duration(float64(left) / fillRate * float64(time.Second))
	return min(max(d, lookMin), lookMax)
}

// memoryUse is what cannot be taken back from a control group.
type memoryUse struct {
	shared int64 // bytes of memory files: the workspace's memory, in gVisor
	own    int64 // bytes of gVisor itself
}

func (u memoryUse) total() int64 { return u.shared + u.own }

// over returns by how much the limit is exceeded. What gVisor holds beyond its due counts for the workspace: it holds it on its behalf.
func (u memoryUse) over(limit int64) int64 {
	return max(u.shared, u.total()-overhead) - limit
}

// memoryGroup is a memory control group of either version, named by its directory. See cgroup-v1/memory.rst and cgroup-v2.rst of the
// kernel's documentation.
type memoryGroup struct {
	dir string
	v2  bool
}

func findMemoryGroup(dirs []string) (memoryGroup, error) {
	for _, dir := range dirs {
		for file, v2 := range map[string]bool{"memory.limit_in_bytes": false, "memory.max": true} {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
				return memoryGroup{dir, v2}, nil
			}
		}
	}
	return memoryGroup{}, errors.New("the sandbox has no memory control group")
}

// pick returns the file's name in the group's version.
func (g memoryGroup) pick(v1, v2 string) string {
	if g.v2 {
		return v2
	}
	return v1
}

func (g memoryGroup) write(file, value string) error {
	f, err := os.OpenFile(filepath.Join(g.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (g memoryGroup) number(file string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// raise sets the limit that nothing gets past. Version 2 slows its processes down in the upper half of the reserve.
func (g memoryGroup) raise(limit int64) error {
	if err := g.write(g.pick("memory.limit_in_bytes", "memory.max"), fmt.Sprint(limit)); err != nil || !g.v2 {
		return err
	}
	return g.write("memory.high", fmt.Sprint(limit-reserve/2))
}

// hold says whether who reaches the limit has to wait, or is killed. Version 2 kills.
func (g memoryGroup) hold(on bool) error {
	if g.v2 {
		return nil
	}
	value := "0"
	if on {
		value = "1"
	}
	return g.write("memory.oom_control", value)
}

// stuck reports whether somebody waits at the limit.
func (g memoryGroup) stuck() bool {
	if g.v2 {
		return false
	}
	n, err := g.fields("memory.oom_control")
	return err == nil && n["under_oom"] > 0
}

// charged is all that counts against the limit, what the kernel would give back included. It is cheap to read.
func (g memoryGroup) charged() (int64, error) {
	return g.number(g.pick("memory.usage_in_bytes", "memory.current"))
}

func (g memoryGroup) used() (memoryUse, error) {
	n, err := g.fields("memory.stat")
	if err != nil {
		return memoryUse{}, err
	}
	if g.v2 {
		return memoryUse{shared: n["shmem"], own: n["anon"] + n["kernel"]}, nil
	}
	kernel, err := g.number("memory.kmem.usage_in_bytes")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // kernels without it count it nowhere else either
		return memoryUse{}, err
	}
	return memoryUse{shared: n["shmem"], own: n["rss"] + kernel}, nil
}

// fields reads a file of lines of a name and a number.
func (g memoryGroup) fields(file string) (map[string]int64, error) {
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return nil, err
	}
	n := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseInt(value, 10, 64); err == nil {
			n[key] = v
		}
	}
	return n, nil
}
