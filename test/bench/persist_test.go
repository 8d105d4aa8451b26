package bench

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/sandbox/gvisor/pages"
)

const (
	groupWork   = "Checkpoints of 1024 MB of RAM, 20000 files, of which 5 MB and 10 files change"
	firstPause  = "the workspace stands still, first checkpoint"
	nextPause   = "the workspace stands still"
	nextTime    = "checkpoint, all of it"
	addedFiles  = "files of memory images added"
	addedChunks = "stored chunks added"
	addedLayers = "file layers added"

	groupMany    = "50 checkpoints of 64 MB of RAM, 1000 files, of which 1 MB and 5 files change"
	storedUnique = "stored chunks and layers, of the unique bytes"
	cachedUnique = "files of memory images, of the unique bytes"

	groupAsleep    = "Suspended sessions"
	asleepList     = "the list, a page of 100"
	asleepProcs    = "processes of 200 suspended sessions"
	asleepMemory   = "memory of the daemon beyond that of one session"
	asleepCheckpnt = "checkpoint of a session, all of it, beside 200 suspended ones"
	aloneCheckpnt  = "checkpoint of a session, all of it, alone"
)

// persist measures what keeping things costs.
func (x *bench) persist(b *testing.B) {
	for _, part := range []struct {
		name string
		run  func(*bench, *testing.B)
	}{{"work", (*bench).work}, {"many", (*bench).many}, {"asleep", (*bench).asleep}} {
		b.Run(part.name, func(b *testing.B) {
			part.run(x, b)
			b.ReportMetric(0, "ns/op")
		})
		x.keep(b)
	}
}

// dirty is code that changes mb megabytes of what cell.hold holds, and count files.
func dirty(mb, count int) string {
	return fmt.Sprintf(`
held[:%d] = os.urandom(%d)
for i in range(%d):
    with open("/root/work/0/f%%d" %% i, "ab") as f: f.write(os.urandom(100))
`, mb<<20, mb<<20, count)
}

// work measures checkpoints of a large session, of which a little changes in between, against the stock engine's of the same memory.
func (x *bench) work(b *testing.B) {
	c := cell{ramMB: 1024, files: 20000}
	if x.quick {
		c = cell{ramMB: 32, files: 1000}
	}
	d := x.serve(b, filepath.Join(x.dir, "work"))
	s := d.create()
	d.run(b, s.ID, api.StartExec{Kind: "python", Code: c.hold()})
	e := x.stock(b, d.dir, "/usr/bin/python3", "-c", cell{ramMB: c.ramMB, files: 10}.hold()+"\nimport time\nwhile True: time.sleep(1000)")
	k := e.prepare("")
	k.boot()
	eventually(b, "stock is ready", func() bool { _, err := os.Stat(filepath.Join(k.upper, "root/ready")); return err == nil })
	where := map[string]string{addedFiles: "checkpoints", addedChunks: "images", addedLayers: "layers"}
	for i := range x.times(6, 3) {
		before := map[string]float64{}
		for name, dir := range where {
			before[name] = used(b, filepath.Join(d.dir, dir))
		}
		d.run(b, s.ID, api.StartExec{Kind: "python", Code: dirty(5, 10)})
		var ck api.Checkpoint
		var err error
		if i == 0 {
			ck, err = d.CreateCheckpoint(b.Context(), s.ID, api.CreateCheckpoint{})
			must(b, err)
			x.add(groupWork, firstPause, perdure, "ms", ck.PauseMS)
		} else {
			x.time(groupWork, nextTime, perdure, func() { ck, err = d.CreateCheckpoint(b.Context(), s.ID, api.CreateCheckpoint{}); must(b, err) })
			x.add(groupWork, nextPause, perdure, "ms", ck.PauseMS)
		}
		d.durable(b, ck.ID)
		if i > 0 {
			for name, dir := range where {
				x.add(groupWork, name, perdure, "MB", used(b, filepath.Join(d.dir, dir))-before[name])
			}
		}
		// The stock engine's stands still for as long as it takes, but for its start: see the time of a command.
		var image string
		x.time(groupWork, nextTime, stock, func() { image = k.checkpoint(true) })
		must(b, os.RemoveAll(image))
	}
}

// many measures how much a series of checkpoints takes, against the content that is in them, each page once.
func (x *bench) many(b *testing.B) {
	c, count := cell{ramMB: 64, files: 1000}, 50
	if x.quick {
		c, count = cell{ramMB: 8, files: 100}, 5
	}
	d := x.serve(b, filepath.Join(x.dir, "many"))
	s := d.create()
	d.run(b, s.ID, api.StartExec{Kind: "python", Code: c.hold()})
	seen := map[[32]byte]bool{}
	unique := 0.0
	for range count {
		d.run(b, s.ID, api.StartExec{Kind: "python", Code: dirty(1, 5)})
		ck, err := d.CreateCheckpoint(b.Context(), s.ID, api.CreateCheckpoint{})
		must(b, err)
		d.durable(b, ck.ID)
		unique += uniqueBytes(b, filepath.Join(d.dir, "checkpoints", ck.ID, "memory"), seen)
	}
	layers := used(b, filepath.Join(d.dir, "layers"))
	unique += layers // which hold what has changed, and nothing twice
	x.add(groupMany, "unique bytes", perdure, "MB", unique)
	x.add(groupMany, storedUnique, perdure, "×", (used(b, filepath.Join(d.dir, "images"))+layers)/unique)
	x.add(groupMany, cachedUnique, perdure, "×", (used(b, filepath.Join(d.dir, "checkpoints"))+layers)/unique)
}

// uniqueBytes adds an image's content to seen, and returns how much of it was not there, in MB.
func uniqueBytes(b *testing.B, dir string, seen map[[32]byte]bool) float64 {
	b.Helper()
	fresh := 0
	add := func(data []byte) {
		if sum := blake3.Sum256(data); !seen[sum] {
			seen[sum] = true
			fresh += len(data)
		}
	}
	im, err := pages.Open(dir)
	must(b, err)
	defer im.Close()
	page := make([]byte, pages.Size)
	_, err = im.Parts(0, im.Bytes(), func(p pages.Part) error {
		for at := int64(0); p.File != nil && at < p.Length; at += pages.Size {
			if _, err := p.File.ReadAt(page, p.At+at); err != nil {
				return err
			}
			add(page)
		}
		return nil
	})
	must(b, err)
	must(b, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), "pages-") {
			return err
		}
		data, err := os.ReadFile(path)
		for ; err == nil && len(data) > 0; data = data[min(len(data), pages.Size):] {
			add(data[:min(len(data), pages.Size)])
		}
		return err
	}))
	return float64(fresh) / (1 << 20)
}

// asleep measures what sessions cost that are suspended.
func (x *bench) asleep(b *testing.B) {
	count := x.times(200, 8)
	d := x.serve(b, filepath.Join(x.dir, "asleep"))
	s := d.create()
	d.run(b, s.ID, api.StartExec{Kind: "python", Code: cell{ramMB: 8, files: 100}.hold()})
	checkpoint := func(name string) string {
		var ck api.Checkpoint
		var err error
		for range 3 {
			x.time(groupAsleep, name, perdure, func() { ck, err = d.CreateCheckpoint(b.Context(), s.ID, api.CreateCheckpoint{}); must(b, err) })
			d.durable(b, ck.ID)
		}
		return ck.ID
	}
	point := checkpoint(aloneCheckpnt)
	procs, memory := processes(b, d.dir), rss(b, d.cmd.Process.Pid)
	for made := 0; made < count; {
		list := d.fork(b, s.ID, point, min(4, count-made))
		for _, f := range list {
			now, err := d.SuspendSession(b.Context(), f.ID)
			must(b, err)
			d.durable(b, now.Workspace.CheckpointID)
		}
		made += len(list)
	}
	x.add(groupAsleep, asleepProcs, perdure, "", float64(processes(b, d.dir)-procs))
	x.add(groupAsleep, asleepMemory, perdure, "MB", rss(b, d.cmd.Process.Pid)-memory)
	for range 5 {
		x.time(groupAsleep, asleepList, perdure, func() { _, err := d.Sessions(b.Context(), api.Page{Limit: 100}); must(b, err) })
	}
	checkpoint(asleepCheckpnt)
	for { // the end of the benchmark leaves lists that are full alone
		list, err := d.Sessions(b.Context(), api.Page{Limit: 100})
		must(b, err)
		if len(list.Data) < 100 {
			return
		}
		d.delete(b, list.Data...)
	}
}

// processes counts those whose arguments or directory name dir, and their descendants.
func processes(b *testing.B, dir string) int {
	b.Helper()
	n := 0
	eachProcess(b, dir, func(int) { n++ })
	return n
}
