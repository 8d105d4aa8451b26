package idle

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"perdure.dev/perdure/internal/clock"
)

// Meter measures how much processor time processes have used, from /proc (proc_pid_stat(5)). One pass over the process table serves all
// who ask within meterAge.
type Meter struct {
	clock clock.Clock

	mu    sync.Mutex // guards all below
	taken time.Time
	table map[int]usage
	tree  map[int][]int // parent → children
}

// usage is a process's processor time, with that of its children that have ended.
type usage struct {
	ppid int
	used time.Duration
}

// meterAge is for how long a pass over the process table is good, and tick what /proc counts in (USER_HZ, 100 on every architecture).
const (
	meterAge = time.Second
	tick     = 10 * time.Millisecond
)

// NewMeter returns one.
func NewMeter(c clock.Clock) *Meter { return &Meter{clock: c} }

// Used returns the processor time of the given processes with all their descendants, and when it was read.
func (m *Meter) Used(roots []int) (time.Duration, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.clock.Now(); m.table == nil || now.Sub(m.taken) >= meterAge || now.Before(m.taken) {
		m.table, m.tree = readTable()
		m.taken = now
	}
	seen := map[int]bool{}
	var sum time.Duration
	for todo := roots; len(todo) > 0; {
		pid := todo[0]
		todo = todo[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		sum += m.table[pid].used
		todo = append(todo[:len(todo):len(todo)], m.tree[pid]...)
	}
	return sum, m.taken
}

func readTable() (map[int]usage, map[int][]int) {
	table, tree := map[int]usage{}, map[int][]int{}
	dir, err := os.Open("/proc")
	if err != nil {
		return table, tree
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return table, tree
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		if u, ok := parseStat(data); ok {
			table[pid] = u
			tree[u.ppid] = append(tree[u.ppid], pid)
		}
	}
	return table, tree
}

// parseStat reads the parent and utime, stime, cutime and cstime.
func parseStat(data []byte) (usage, bool) {
	f := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(f) < 15 {
		return usage{}, false
	}
	ppid, err := strconv.Atoi(string(f[1]))
	if err != nil {
		return usage{}, false
	}
	u := usage{ppid: ppid}
	for _, field := range f[11:15] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return usage{}, false
		}
		u.used += time.Duration(n) * tick
	}
	return u, true
}

// Load notices from successive readings whether processes compute.
type Load struct {
	used  time.Duration
	at    time.Time
	known bool
	// Computing is whether they did between the last two readings, Since when they have, and Last when that was seen last.
	Computing   bool
	Since, Last time.Time
}

// share is the part of one processor that counts as computing. What an idle sandbox itself takes is a tenth of it.
const share = 0.05

// leastSpan is the shortest time between two readings that says something.
const leastSpan = 500 * time.Millisecond

// Note takes a reading, and reports whether it is known now what the processes do.
func (l *Load) Note(used time.Duration, at time.Time) bool {
	if l.at.IsZero() || used < l.used { // the first, or of other processes
		l.used, l.at, l.known = used, at, false
		return false
	}
	span := at.Sub(l.at)
	if span < leastSpan {
		return l.known
	}
	computing := float64(used-l.used) >= share*float64(span)
	if computing && !l.Computing {
		l.Since = l.at
	}
	if computing {
		l.Last = at
	}
	l.Computing, l.used, l.at, l.known = computing, used, at, true
	return true
}
