package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/client"
)

// op is an operation that is cut at each of its points.
type op struct {
	ref string // the session whose events are followed meanwhile
	// prepare brings the world to where the operation can begin.
	prepare func(w *world)
	run     func(ctx context.Context, w *world, c *client.Client) error
	// check looks at what is there after the crash. told says that the caller was told of success.
	check func(w *world, told bool)
}

// point is a place at which the daemon dies.
type point struct {
	name  string
	count int // the how manieth time
}

func (p point) String() string { return fmt.Sprintf("%d %s", p.count, p.name) }

// points does the operation once and returns what it goes through.
func (w *world) points(o op) []point {
	w.t.Helper()
	o.prepare(w)
	w.quiet()
	w.mark = w.session(o.ref).LastSeq
	file := filepath.Join(w.dir, "points")
	w.order("record " + file)
	if err := o.run(w.ctx(), w, w.c); err != nil {
		w.t.Fatalf("without a crash: %v", err)
	}
	w.quiet()
	w.order("")
	o.check(w, true)
	b, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		w.t.Fatal(err)
	}
	count := map[string]int{}
	var all []point
	for _, name := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		count[name]++
		all = append(all, point{name, count[name]})
	}
	return all
}

// cut does the operation while the daemon dies at p, and checks what is left.
func (w *world) cut(o op, p point) {
	w.t.Helper()
	o.prepare(w)
	w.quiet()
	w.mark = w.session(o.ref).LastSeq
	stop := w.follow(o.ref)
	w.order("die " + p.String())
	err := o.run(w.ctx(), w, w.once)
	switch {
	case err == nil:
		w.settle()
	case !w.fell(deathIn):
		w.t.Errorf("the daemon lives, and the operation failed: %v", err)
	}
	stop()
	w.order("")
	if w.fell(0) {
		w.up()
	} else {
		w.t.Logf("the point was not met this time")
	}
	w.intact()
	o.check(w, err == nil)
	w.answered(o.ref)
}

// settle waits until the daemon has died, or has nothing more to do in the background.
func (w *world) settle() {
	w.t.Helper()
	until(w.t, "the end of what goes on in the background", func() error {
		if w.fell(0) {
			return nil
		}
		if warm := w.warm(); warm != nil {
			return warm
		}
		if w.fell(100 * time.Millisecond) { // what follows the last append
			return nil
		}
		return w.warm()
	})
}

// walk cuts an operation at its points: at all of them, or at those that are new to this run and a fixed sample of the others.
func walk(w *world, met map[string]bool, name string, o op) {
	w.t.Run(name, func(t *testing.T) {
		outer := w.t
		defer func() { w.t = outer }()
		w.t = t
		all := w.points(o)
		if len(all) < 2 {
			t.Fatalf("only %d points", len(all))
		}
		walked := 0
		for _, p := range all {
			if !full() && met[p.name] && !sampled(name, p) {
				continue
			}
			met[p.name] = true
			walked++
			ok := t.Run(strings.ReplaceAll(p.String(), " ", "_"), func(t *testing.T) {
				w.t = t
				w.cut(o, p)
			})
			w.t = t
			if !ok && w.fell(0) {
				w.order("")
				w.up()
			}
		}
		t.Logf("%d of %d points", walked, len(all))
	})
}

// sampled chooses about one point in sixteen, always the same ones.
func sampled(name string, p point) bool {
	h := fnv.New32a()
	fmt.Fprint(h, name, p)
	return h.Sum32()%16 == 0
}
