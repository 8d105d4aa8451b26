package service_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox/gvisor"
)

// arena is memory that is written, moved, freed and given back, and a hash of all of it.
const arena = `
import hashlib, mmap, os, random
parts = [os.urandom(4096 * (1 + i % 5)) for i in range(600)]
mm = mmap.mmap(-1, 16 << 20)
def mutate(seed):
    r = random.Random(seed)
    for _ in range(200):
        i, j, k = r.randrange(600), r.randrange(600), r.random()
        if k < .3: parts[i] = r.randbytes(4096 * r.randint(1, 8))
        elif k < .5: parts[i], parts[j] = parts[j], parts[i]
        elif k < .6: parts[i] = b""
        elif k < .7: parts[i] = bytes(4096 * r.randint(1, 16))
        elif k < .85: o = 4096 * r.randrange(4096); mm[o:o + 4096] = r.randbytes(4096)
        else: mm.madvise(mmap.MADV_DONTNEED, 4096 * r.randrange(4080), 65536)
def digest():
    h = hashlib.sha256()
    for p in parts: h.update(p + b"|")
    h.update(mm)
    return h.hexdigest()
`

// TestMemoryIsThatOfTheCheckpoint takes checkpoints of a memory that changes, deletes some of those whose pages others share, and goes to the rest in any
// order, by rollback, fork, and after a sleep.
func TestMemoryIsThatOfTheCheckpoint(t *testing.T) {
	w := newWorld(t)
	w.create("a", gvisor.Name)
	w.python("a", arena)
	rnd := rand.New(rand.NewPCG(7, 8))
	want := map[string]string{}
	var have []string
	take := func() {
		t.Helper()
		w.python("a", fmt.Sprintf("mutate(%d)", rnd.Uint32()))
		c, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
		if err != nil {
			t.Fatal(err)
		}
		want[c.ID] = w.python("a", "digest()")
		have = append(have, c.ID)
	}
	drop := func(i int) {
		t.Helper()
		if err := w.svc.DeleteCheckpoint(w.ctx(), id.Checkpoint(have[i])); err != nil {
			t.Fatal(err)
		}
		have = append(have[:i], have[i+1:]...)
	}
	for range 6 {
		take()
	}
	drop(0) // the one that wrote most of the pages
	drop(2)
	for step := range 8 {
		c := have[rnd.IntN(len(have))]
		if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: c}); err != nil {
			t.Fatal(err)
		}
		w.want(w.python("a", "digest()"), want[c])
		switch step % 4 {
		case 0:
			take()
		case 1:
			if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
				t.Fatal(err)
			}
			w.want(w.python("a", "digest()"), want[c])
			take()
		case 2:
			f, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Checkpoint: have[0], Count: 1})
			if err != nil {
				t.Fatal(err)
			}
			w.want(w.python(f.Data[0].ID, "digest()"), want[have[0]])
			if err := w.svc.DeleteSession(w.ctx(), f.Data[0].ID); err != nil {
				t.Fatal(err)
			}
		case 3:
			drop(rnd.IntN(len(have) - 1))
		}
	}
	if r, err := w.svc.CheckStorage(w.ctx(), api.CheckStorage{}); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}
