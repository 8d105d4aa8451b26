package inside

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper collects every child that ends: own ones for those who wait for them, orphans for nobody. It alone calls wait, so
// no status is taken from anybody.
type reaper struct {
	wake chan struct{} // capacity 1

	mu        sync.Mutex // guards all below
	children  map[int]chan unix.WaitStatus
	starting  int                     // forks whose pid is not registered yet
	unclaimed map[int]unix.WaitStatus // ends seen during those
}

func newReaper() *reaper {
	return &reaper{
		wake: make(chan struct{}, 1), children: map[int]chan unix.WaitStatus{}, unclaimed: map[int]unix.WaitStatus{},
	}
}

// poke says that a child may have ended.
func (r *reaper) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reaper) run(ctx context.Context) {
	for {
		r.reap()
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reaper) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock()
		if ch, ok := r.children[pid]; ok {
			delete(r.children, pid)
			ch <- ws // capacity 1, one end per child
		} else if r.starting > 0 {
			r.unclaimed[pid] = ws
		}
		r.mu.Unlock()
	}
}

// start runs fork, which returns a new child's pid, and returns where its end will be told.
func (r *reaper) start(fork func() (int, error)) (int, <-chan unix.WaitStatus, error) {
	r.mu.Lock()
	r.starting++
	r.mu.Unlock()
	pid, err := fork()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	ch := make(chan unix.WaitStatus, 1)
	if err == nil {
		if ws, ended := r.unclaimed[pid]; ended {
			delete(r.unclaimed, pid)
			ch <- ws
		} else {
			r.children[pid] = ch
		}
	}
	if r.starting == 0 {
		clear(r.unclaimed)
	}
	return pid, ch, err
}
