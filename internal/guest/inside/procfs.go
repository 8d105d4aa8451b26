package inside

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// ticksPerSecond is USER_HZ, in which /proc counts; it is 100 on every architecture that Linux has.
const ticksPerSecond = 100

// proc is one process as /proc/PID/stat shows it (proc_pid_stat(5)).
type proc struct {
	pid, ppid, pgid, sid int
	comm, state          string
	start                uint64 // in ticks since boot
	rss                  int64  // bytes
}

// bootTicks returns the time since boot in the unit of proc.start.
func bootTicks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano() / (1e9 / ticksPerSecond))
}

// readProcs returns all processes of the sandbox but this one, by pid. Where the guest is not process 1 it shares its /proc with
// strangers; its own are those that descend from it, since it adopts their orphans.
func readProcs() map[int]proc {
	all := map[int]proc{}
	dir, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return all
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p, ok := readProc(pid); ok {
			all[pid] = p
		}
	}
	if self := os.Getpid(); self != 1 {
		ours := map[int]proc{}
		for pid, p := range all {
			if descends(all, p, self) {
				ours[pid] = p
			}
		}
		return ours
	}
	return all
}

func readProc(pid int) (proc, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return proc{}, false
	}
	f := strings.Fields(string(data[end+1:]))
	if len(f) < 22 {
		return proc{}, false
	}
	num := func(i int) int {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			return 0
		}
		return n
	}
	p := proc{pid: pid, comm: string(data[open+1 : end]), state: f[0], ppid: num(1), pgid: num(2), sid: num(3)}
	p.start = uint64(num(19))
	p.rss = int64(num(21)) * int64(os.Getpagesize())
	return p, true
}

// markOf returns the command that a process's environment names.
func markOf(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for kv := range bytes.SplitSeq(data, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte(marker+"=")); ok {
			return string(v)
		}
	}
	return ""
}

func argsOf(p proc) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
	data = bytes.TrimRight(data, "\x00")
	if err != nil || len(data) == 0 {
		return []string{"[" + p.comm + "]"}
	}
	return strings.Split(string(data), "\x00")
}

// descends reports whether p is root's descendant. Loops, which a changing /proc can show, end.
func descends(all map[int]proc, p proc, root int) bool {
	for range 1000 {
		if p.ppid == root {
			return true
		}
		parent, ok := all[p.ppid]
		if !ok {
			return false
		}
		p = parent
	}
	return false
}

// owners is what attribution needs to know of the commands.
type owners struct {
	leaders map[int]string   // pid of a process command → its id
	shells  map[int]*command // pid of an interpreter → what it runs, may be nil
}

func (g *Guest) owners() owners {
	o := owners{leaders: map[int]string{}, shells: map[int]*command{}}
	g.mu.Lock()
	interps := make([]*interp, 0, len(g.interps))
	for _, i := range g.interps {
		interps = append(interps, i)
	}
	for id, c := range g.execs {
		if c.spec.Kind == "process" && c.pid != 0 {
			o.leaders[c.pid] = id
		}
	}
	g.mu.Unlock()
	for _, i := range interps {
		if pid, c := i.current(); pid != 0 {
			o.shells[pid] = c
		}
	}
	return o
}

// owner returns the command that a process belongs to: what its environment says, else its session, group or ancestors.
func (o owners) owner(all map[int]proc, p proc) string {
	if c, ok := o.shells[p.pid]; ok {
		if c == nil {
			return ""
		}
		return c.spec.ID
	}
	for q, steps := p, 0; steps < 1000; steps++ {
		for shell, c := range o.shells {
			if q.ppid == shell || q.pgid == shell {
				if m := markOf(p.pid); m != "" {
					return m
				}
				if c != nil && p.start >= c.startTick {
					return c.spec.ID
				}
				return ""
			}
		}
		for _, lead := range []int{q.pid, q.pgid, q.sid} {
			if id, ok := o.leaders[lead]; ok {
				return id
			}
		}
		parent, ok := all[q.ppid]
		if !ok {
			break
		}
		q = parent
	}
	return markOf(p.pid)
}

func (g *Guest) processes() []wire.Process {
	all := readProcs()
	o := g.owners()
	list := make([]wire.Process, 0, len(all))
	for _, p := range all {
		list = append(list, wire.Process{
			PID: p.pid, PPID: p.ppid, Args: argsOf(p), State: p.state, RSS: p.rss, Exec: o.owner(all, p),
		})
	}
	return list
}
