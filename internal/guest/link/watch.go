package link

import (
	"context"

	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/sandbox"
)

// watchBuffer is how many changes may wait for a slow reader before some are dropped, which it is told.
const watchBuffer = 1024

// watch is one file watch, over as many connections as it takes.
type watch struct {
	path   string
	frame  []byte
	events chan sandbox.FileChange // sent to under Link.mu only
	lost   bool                    // an overflow is to be told; Link.mu guards it
	gone   chan struct{}           // closed when the link fails
}

// Watch implements sandbox.Files.
func (f files) Watch(ctx context.Context, path string) (<-chan sandbox.FileChange, error) {
	w := &watch{path: path, events: make(chan sandbox.FileChange, watchBuffer), gone: make(chan struct{})}
	n, p, err := f.l.begin(wire.MethodFileWatch, wire.PathArgs{Path: path}, nil, nil, func(n uint64, p *call) {
		w.frame = p.frame
		f.l.watches[n] = w
	})
	if err != nil {
		return nil, err
	}
	if _, err := f.l.wait(ctx, n, p, nil); err != nil {
		f.l.unwatch(n)
		return nil, err
	}
	f.l.work.Add(1)
	go func() {
		defer f.l.work.Done()
		defer close(w.events)
		select {
		case <-ctx.Done():
			f.l.unwatch(n)
		case <-w.gone:
		}
	}()
	return w.events, nil
}

// unwatch ends a watch; the guest is told without waiting for its answer.
func (l *Link) unwatch(n uint64) {
	l.mu.Lock()
	delete(l.watches, n)
	l.mu.Unlock()
	if _, _, err := l.begin(wire.MethodFileUnwatch, wire.UnwatchArgs{Watch: n}, nil, nil); err != nil {
		l.cfg.Log.Debug("ending a watch", "err", err)
	}
}

func (l *Link) onEvent(e wire.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watches[e.Watch]
	if w == nil {
		return
	}
	if e.Op == sandbox.OpOverflow || !w.offer(sandbox.FileChange{Path: e.Path, Op: e.Op}) {
		w.missed()
	}
}

// offer delivers a change, after the overflow that is due.
func (w *watch) offer(c sandbox.FileChange) bool {
	if w.lost {
		w.missed()
		if w.lost {
			return false
		}
	}
	select {
	case w.events <- c:
		return true
	default:
		return false
	}
}

func (w *watch) missed() {
	select {
	case w.events <- sandbox.FileChange{Path: w.path, Op: sandbox.OpOverflow}:
		w.lost = false
	default:
		w.lost = true
	}
}
