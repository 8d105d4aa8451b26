package snapshot_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// image is like a memory image: a third random, a third text, a third zeros, in runs.
func image(n int) []byte {
	b := make([]byte, n)
	for at := 0; at < n; at += 3 << 18 {
		copy(b[at:], noise(uint64(at>>18), min(1<<18, n-at)))
		if at += 1 << 18; at < n {
			copy(b[at:min(n, at+1<<18)], bytes.Repeat(fmt.Appendf(nil, "line %d of something, ", at), 1<<18/16))
		}
		at -= 1 << 18
	}
	return b
}

func BenchmarkSave(b *testing.B) {
	data := image(128 << 20)
	changed := slices.Clone(data)
	copy(changed[50<<20:], noise(9999, 5<<20))
	for _, c := range []struct {
		name  string
		first bool
	}{{"first", true}, {"5MB-changed", false}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for range b.N {
				b.StopTimer()
				r := newRig(b, b.TempDir())
				if !c.first {
					r.save(b, "lin", "base", data)
				}
				b.StartTimer()
				added := r.save(b, "lin", "x", changed)
				b.ReportMetric(float64(added.Stored)/1e6, "MB-stored")
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	data := image(128 << 20)
	r := newRig(b, b.TempDir())
	r.save(b, "lin", "x", data)
	m := &memory{b: make([]byte, len(data))}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		s, err := r.Open(b.Context(), "lin", "x")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Extract(b.Context(), "memory", m); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
