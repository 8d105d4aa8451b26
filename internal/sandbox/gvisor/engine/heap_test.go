package engine

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestCollectionIsLateUntilTheHeapHasGrown(t *testing.T) {
	if live := liveHeap(); live >= grown {
		t.Fatalf("the test itself holds %d bytes", live)
	}
	before := debug.SetGCPercent(latePercent)
	defer debug.SetGCPercent(before)
	collectLate()
	percent := func() int { // as set; asking sets it
		p := debug.SetGCPercent(earlyPercent)
		debug.SetGCPercent(p)
		return p
	}
	for range 3 {
		runtime.GC()
		if p := percent(); p != earlyPercent {
			t.Fatalf("%d percent after a collection of a small heap", p)
		}
	}
	held := make([][]byte, 0, 16)
	for range cap(held) {
		held = append(held, make([]byte, grown/8))
	}
	deadline := time.Now().Add(10 * time.Second)
	for percent() != latePercent {
		if time.Now().After(deadline) {
			t.Fatalf("still %d percent with %d bytes in use", percent(), liveHeap())
		}
		runtime.GC() // what watches runs beside it
	}
	runtime.KeepAlive(held)
}
