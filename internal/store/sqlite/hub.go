package sqlite

import (
	"sync"

	"perdure.dev/perdure/internal/id"
)

// hub wakes subscriptions. It carries no events: a woken reader reads the store, so a slow one loses nothing and nothing is
// queued for it. Only sessions that somebody watches have an entry.
type hub struct {
	mu     sync.Mutex // guards the fields below; a leaf
	ears   map[id.Session]map[*ear]struct{}
	closed bool
}

// ear is one subscription's bell. rung has room for one ring, which is enough: whoever hears it reads up to the end.
type ear struct {
	rung chan struct{}
	gone chan struct{} // closed when the session is deleted or the store closes
}

func newHub() *hub { return &hub{ears: map[id.Session]map[*ear]struct{}{}} }

// listen registers an ear; nil when the store is closed.
func (h *hub) listen(sid id.Session) *ear {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	e := &ear{rung: make(chan struct{}, 1), gone: make(chan struct{})}
	if h.ears[sid] == nil {
		h.ears[sid] = map[*ear]struct{}{}
	}
	h.ears[sid][e] = struct{}{}
	return e
}

func (h *hub) unlisten(sid id.Session, e *ear) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ears[sid], e)
	if len(h.ears[sid]) == 0 {
		delete(h.ears, sid)
	}
}

// wake tells the session's subscriptions that there is something new.
func (h *hub) wake(sid id.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := range h.ears[sid] {
		select {
		case e.rung <- struct{}{}:
		default:
		}
	}
}

// end tells the session's subscriptions that nothing will come any more.
func (h *hub) end(sid id.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := range h.ears[sid] {
		close(e.gone)
	}
	delete(h.ears, sid)
}

// close ends all subscriptions.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, ears := range h.ears {
		for e := range ears {
			close(e.gone)
		}
	}
	clear(h.ears)
}

func (h *hub) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}
