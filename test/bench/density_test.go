package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/api"
)

// density measures what K forks hold in memory and on disk, against K full copies.
func (x *bench) density(b *testing.B) {
	c, k := cell{ramMB: 256, files: 1000}, 4
	if x.quick {
		c, k = cell{ramMB: 16, files: 100}, 2
	}
	g := fmt.Sprintf("%d forks of %s", k, c)
	d := x.serve(b, filepath.Join(x.dir, "density"))
	s := d.create()
	d.run(b, s.ID, api.StartExec{Kind: "python", Code: c.hold()})
	ck, err := d.CreateCheckpoint(b.Context(), s.ID, api.CreateCheckpoint{})
	must(b, err)
	d.durable(b, ck.ID)
	memory, disk := pss(b, d.dir), used(b, d.dir)
	forks := d.fork(b, s.ID, ck.ID, k)
	x.add(g, "memory of all forks (PSS)", perdure, "MB", pss(b, d.dir)-memory)
	for _, f := range forks { // every page is touched, and none changed
		d.run(b, f.ID, api.StartExec{Kind: "python", Code: "assert len(held) == sum(1 for _ in held)"})
	}
	x.add(g, "memory of all forks, all of it read", perdure, "MB", pss(b, d.dir)-memory)
	x.add(g, "disk of all forks", perdure, "MB", used(b, d.dir)-disk)

	e := x.stock(b, d.dir, "/usr/bin/python3", "-c", c.hold()+"\nimport time\nwhile True: time.sleep(1000)")
	one := e.prepare("")
	one.boot()
	eventually(b, "stock is ready", func() bool { _, err := os.Stat(filepath.Join(one.upper, "root/ready")); return err == nil })
	memory, disk = pss(b, e.dir), used(b, e.dir)
	image := one.checkpoint(true)
	for range k { // a full copy has a memory image of its own
		copied := filepath.Join(e.dir, fmt.Sprint("full", e.last))
		must(b, os.CopyFS(copied, os.DirFS(image)))
		f := e.prepare(one.copyFiles())
		f.restore(copied, false)
		f.answer()
	}
	must(b, os.RemoveAll(image))
	x.add(g, "memory of all forks (PSS)", stock, "MB", pss(b, e.dir)-memory)
	x.add(g, "disk of all forks", stock, "MB", used(b, e.dir)-disk)
}

// pss sums the proportional memory of the processes whose arguments name dir and of all their descendants, in MB.
func pss(b *testing.B, dir string) float64 {
	b.Helper()
	total := 0.0
	eachProcess(b, dir, func(pid int) { total += pssOf(pid) })
	return total
}

// eachProcess calls f for the processes whose arguments or directory name dir, and for all their descendants.
func eachProcess(b *testing.B, dir string, f func(pid int)) {
	b.Helper()
	entries, err := os.ReadDir("/proc")
	must(b, err)
	ours, parent := map[int]bool{}, map[int]int{}
	for _, p := range entries {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", p.Name(), "stat"))
		if err != nil {
			continue // has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if parent[pid], err = strconv.Atoi(fields[1]); err != nil {
			b.Fatal(err)
		}
		args, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline")) // empty once it has ended
		cwd, _ := os.Readlink(filepath.Join("/proc", p.Name(), "cwd"))
		ours[pid] = strings.Contains(string(args), dir+"/") || strings.HasPrefix(cwd, dir+"/")
	}
	for pid := range parent {
		for p := pid; p > 1; p = parent[p] {
			if ours[p] {
				f(pid)
				break
			}
		}
	}
}

// pssOf is 0 for a process that has ended.
func pssOf(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for l := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(l, "Pss:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}

// used is what a tree takes on disk, in MB: every file once, mounts left out.
func used(b *testing.B, dir string) float64 {
	b.Helper()
	type inode struct{ dev, ino uint64 }
	seen, blocks := map[inode]bool{}, int64(0)
	var device uint64
	var walk func(string)
	walk = func(path string) {
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) != nil {
			return // gone meanwhile
		}
		if device == 0 {
			device = st.Dev
		}
		if st.Dev != device || seen[inode{st.Dev, st.Ino}] {
			return
		}
		seen[inode{st.Dev, st.Ino}] = true
		blocks += st.Blocks
		if st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			entries, _ := os.ReadDir(path)
			for _, e := range entries {
				walk(filepath.Join(path, e.Name()))
			}
		}
	}
	walk(dir)
	return float64(blocks) / 2048
}
