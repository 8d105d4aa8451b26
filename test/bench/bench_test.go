package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const engineModule = "gvisor.dev/gvisor"

// bench is one run.
type bench struct {
	*Report
	dir    string // all data
	bin    string // our binaries and stock's
	inside string // the helper that measures in a sandbox
	quick  bool   // few repetitions, small cells
}

// BenchmarkFigures measures everything. Its parts are benchmarks of their own, so that one that fails leaves the others.
func BenchmarkFigures(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("sandboxes on a root file system of overlays need root")
	}
	x := &bench{Report: newReport(b), dir: tempDir(b), quick: testing.Short()}
	x.build(b)
	for _, part := range []struct {
		name string
		run  func(*bench, *testing.B)
	}{
		{"log", (*bench).log}, {"idle", (*bench).idle}, {"life", (*bench).life}, {"cells", (*bench).cells}, {"density", (*bench).density},
		{"persist", (*bench).persist},
	} {
		b.Run(part.name, func(b *testing.B) {
			part.run(x, b)
			b.ReportMetric(0, "ns/op") // the report has the figures
		})
		x.keep(b)
	}
	fmt.Println(x.markdown()) // a benchmark that has parts logs nothing
	b.ReportMetric(0, "ns/op")
}

// keep writes down what has been measured so far: a run takes minutes and may be ended early.
func (x *bench) keep(b *testing.B) {
	b.Helper()
	x.goals()
	x.finish()
	if !x.quick && !b.Failed() {
		x.write(b, "results")
	}
}

func tempDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(baseDir(), "pb-")
	must(b, err)
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// build builds our binaries, the helper and the stock engine's command line.
func (x *bench) build(b *testing.B) {
	b.Helper()
	x.bin = filepath.Join(x.dir, "bin")
	must(b, os.MkdirAll(x.bin, 0o755))
	x.inside = filepath.Join(x.bin, "inside")
	for _, args := range [][]string{
		{"-o", x.bin + "/", "perdure.dev/perdure/cmd/..."},
		{"-o", x.inside, "perdure.dev/perdure/test/bench/inside"},
		{"-o", filepath.Join(x.bin, "runsc"), engineModule + "/runsc"},
	} {
		cmd := exec.CommandContext(b.Context(), "go", append([]string{"build"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("go build %v: %v\n%s", args, err, out)
		}
	}
}

// times is how often something is repeated: fewer times in the quick form.
func (x *bench) times(full, quick int) int {
	if x.quick {
		return quick
	}
	return full
}

// goals compares what was measured with what was wished for.
func (x *bench) goals() {
	x.Goals = nil
	small := cell{ramMB: 16, files: 1000}.String()
	ratio := func(group, name, variant string) float64 {
		if other := x.median(group, name, variant); other > 0 {
			return x.median(group, name, perdure) / other
		}
		return 0
	}
	x.goal("resume of a small session: at most 0.5 of the stock command line's restore and first command", ratio(small, resumeAnswered, stock), 0.5, false)
	big := cell{ramMB: 1024, files: 1000}.String()
	x.goal("resume of 1 GB: at most 0.25 of stock's", ratio(big, resumeAnswered, stock), 0.25, false)
	x.goal("create → first command: at most 0.35 of stock's run and exec", ratio(groupLife, createAnswered, stock), 0.35, false)
	x.goal("fork ×16 of 256 MB: all answered in at most 0.25 of 16 restores", ratio(cell{ramMB: 256, files: 1000}.String(), "fork ×16 → each answered", stock), 0.25, false)
	if resume := x.median(big, resumeAnswered, perdure); resume > 0 {
		x.goal("rollback of 1 GB: at most a resume", x.median(big, rollbackAnswered, perdure)/resume, 1, false)
	}
	if theirs := x.median(groupWork, nextTime, stock); theirs > 0 {
		x.goal("pause of a checkpoint of 1 GB with 5 MB changed: at most 0.6 of stock's checkpoint", x.median(groupWork, nextPause, perdure)/theirs, 0.6, false)
	}
	x.goal("50 checkpoints: stored bytes at most 1.3 of the unique ones", x.median(groupMany, storedUnique, perdure), 1.3, false)
	x.goal("suspended sessions: a page of the list within 100 ms", x.median(groupAsleep, asleepList, perdure), 100, false)
	many := cell{ramMB: 16, files: 20000}.String()
	if few := x.median(small, forkAnswered, perdure); few > 0 {
		x.goal("fork: 20,000 files against 1,000, independent (within 1.15)", x.median(many, forkAnswered, perdure)/few, 1.15, false)
	}
	if few := x.median(small, rollbackAnswered, perdure); few > 0 {
		x.goal("rollback: 20,000 files against 1,000, independent (within 1.15)", x.median(many, rollbackAnswered, perdure)/few, 1.15, false)
	}
	x.goal("shell command without a new process, p50: at most 3 ms", x.median(groupLife, shellCommand, perdure), 3, false)
	if inside := x.median(groupLife, forkExecInside, perdure); inside > 0 {
		x.goal("exec of a new process: at most 1.3 of fork + exec inside", x.median(groupLife, processCommand, perdure)/inside, 1.3, false)
	}
	x.goal("durable events/s over 50 sessions: at least 5,000", x.median(groupLog, events50, perdure), 5000, true)
	x.goal("10,000 idle sessions: the daemon's RSS below 200 MB", x.median(groupIdle, idleRSS, perdure), 200, false)
}
