package idle

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/id"
)

// Scheduler looks at sessions when they are due. What it costs grows with the sessions that are in it, which are the hot ones.
type Scheduler struct {
	clock clock.Clock

	mu      sync.Mutex // guards all below
	queue   queue
	entries map[id.Session]*entry
	woken   chan struct{} // closed and replaced when the first entry may have changed
}

// entry is a session in the queue, or one that is being looked at.
type entry struct {
	session id.Session
	at      time.Time
	index   int       // in the queue; -1: it is being looked at
	again   time.Time // set while it was being looked at; zero: it was not
	dropped bool
}

// NewScheduler returns an empty one.
func NewScheduler(c clock.Clock) *Scheduler {
	return &Scheduler{clock: c, entries: map[id.Session]*entry{}, woken: make(chan struct{})}
}

// Set has a session looked at at a time, or earlier if it is to be already.
func (s *Scheduler) Set(session id.Session, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[session]
	switch {
	case e == nil:
		e = &entry{session: session, at: at}
		s.entries[session] = e
		heap.Push(&s.queue, e)
	case e.index < 0:
		e.dropped = false
		if e.again.IsZero() || at.Before(e.again) {
			e.again = at
		}
		return
	case at.Before(e.at):
		e.at = at
		heap.Fix(&s.queue, e.index)
	default:
		return
	}
	s.wakeLocked()
}

// Drop takes a session out. A look that has begun ends by itself.
func (s *Scheduler) Drop(session id.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[session]
	switch {
	case e == nil:
	case e.index < 0:
		e.dropped, e.again = true, time.Time{}
	default:
		heap.Remove(&s.queue, e.index)
		delete(s.entries, session)
	}
}

// Len is how many sessions are in it.
func (s *Scheduler) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

func (s *Scheduler) wakeLocked() {
	close(s.woken)
	s.woken = make(chan struct{})
}

// Run calls look for each session that is due, for at most so many at a time, until ctx ends; it returns when the last look has. A look
// returns when the session is to be looked at next; zero takes it out, unless it was Set meanwhile.
func (s *Scheduler) Run(ctx context.Context, atATime int, look func(context.Context, id.Session) time.Time) {
	var looks sync.WaitGroup
	defer looks.Wait()
	slots := make(chan struct{}, atATime)
	for ctx.Err() == nil {
		e, wait, woken := s.next()
		if e == nil {
			s.rest(ctx, wait, woken)
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		looks.Go(func() {
			at := look(ctx, e.session)
			<-slots
			s.done(e, at)
		})
	}
}

// next takes out the first entry if it is due, or says for how long there is nothing to do; 0: for ever.
func (s *Scheduler) next() (*entry, time.Duration, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, 0, s.woken
	}
	if wait := s.queue[0].at.Sub(s.clock.Now()); wait > 0 {
		return nil, wait, s.woken
	}
	e := heap.Pop(&s.queue).(*entry)
	e.index = -1
	return e, 0, nil
}

func (s *Scheduler) rest(ctx context.Context, wait time.Duration, woken <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if wait == 0 {
		select {
		case <-woken:
		case <-ctx.Done():
		}
		return
	}
	go func() {
		select {
		case <-woken:
			cancel()
		case <-ctx.Done():
		}
	}()
	_ = s.clock.Sleep(ctx, wait) // woken early is fine: the caller looks again
}

func (s *Scheduler) done(e *entry, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.again.IsZero() && (at.IsZero() || e.again.Before(at)) {
		at = e.again
	}
	if e.dropped || at.IsZero() {
		delete(s.entries, e.session)
		return
	}
	e.at, e.again = at, time.Time{}
	heap.Push(&s.queue, e)
	s.wakeLocked()
}

// queue is a heap of entries by time.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].index, q[j].index = i, j }

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
