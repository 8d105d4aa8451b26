package sandboxtest

import (
	"slices"
	"testing"
	"time"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Figures measures what users wait for: one life of a sandbox per iteration. Medians in milliseconds.
func Figures(b *testing.B, make Make) {
	bin := Build(b)
	times := map[string][]time.Duration{}
	clock := func(what string, do func()) {
		began := time.Now()
		do()
		times[what] = append(times[what], time.Since(began))
	}
	for b.Loop() {
		bench := newBench(b, make(b, bin))
		var s sandbox.Sandbox
		clock("1-start", func() { s = bench.start() })
		clock("2-first-exec", func() { bench.ok(s, "true") })
		for range 30 {
			clock("3-exec", func() { bench.wait(s, bench.begin(s, execOf("/bin/true"))) })
			clock("4-status", func() { bench.state(s) })
		}
		shell := func() sandbox.ExecSpec {
			return sandbox.ExecSpec{ID: id.NewExec(), Kind: sandbox.ExecShell, Code: "true"}
		}
		bench.wait(s, bench.begin(s, shell()))
		for range 30 {
			clock("5-shell", func() { bench.wait(s, bench.begin(s, shell())) })
		}
		clock("6-pause", func() { must(b, s.Pause(bench.ctx())) })
		clock("7-unpause", func() { must(b, s.Unpause(bench.ctx())) })
		if bench.caps.Memory {
			bench.memoryFigures(s, clock, times)
		}
		clock("b-destroy", func() { must(b, s.Destroy(bench.ctx())) })
	}
	for what, all := range times {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, what+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}

func (b *bench) memoryFigures(s sandbox.Sandbox, clock func(string, func()), times map[string][]time.Duration) {
	var warm sandbox.Warm
	var layers []string
	clock("8-checkpoint", func() { warm, layers = b.checkpoint(s, b.spec, false) })
	times["8-checkpoint-pause"] = append(times["8-checkpoint-pause"], warm.Pause())
	fork := b.fork("fork")
	fork.Root.Layers = layers
	var f sandbox.Sandbox
	clock("9-restore", func() { f = b.restore(fork, warm.Image()) })
	clock("a-restored-first-exec", func() { b.ok(f, "true") })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
