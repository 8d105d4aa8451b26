package engine

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// earlyPercent is Go's GOGC until the sandbox's kernel has been loaded. Loading one is nothing but allocating, of what stays: collecting
	// meanwhile, from 4 MB on, was a quarter of its processor time. With this the first collection comes at 16 MB.
	earlyPercent = 400
	latePercent  = 100
	// grown is how much live heap tells that the kernel has been loaded, in bytes. Before, there are some 2 MB.
	grown = 4 << 20
)

// collectLate spares a starting sandbox the garbage collector, until it has its kernel or has allocated as much as one.
func collectLate() {
	debug.SetGCPercent(earlyPercent)
	watchCollection()
}

// watchCollection looks at the heap after the next collection. There is one every two minutes also when nothing happens.
func watchCollection() {
	witness := new([64]byte)
	runtime.AddCleanup(witness, func(int) {
		if liveHeap() < grown {
			watchCollection()
			return
		}
		debug.SetGCPercent(latePercent)
	}, 0)
}

// liveHeap is what the last collection found in use, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return grown // unknown to this Go: as if it had grown
	}
	return sample[0].Value.Uint64()
}
