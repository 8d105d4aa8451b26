// Package clocktest has a clock for tests that can be put forward.
package clocktest

import (
	"context"
	"sync"
	"time"
)

// Clock is the machine's clock, so that what is really waited for goes on, plus what it has been put forward by.
type Clock struct {
	mu     sync.Mutex // guards all below
	ahead  time.Duration
	jumped chan struct{} // closed and replaced at each jump
}

// New returns a clock that shows the present.
func New() *Clock { return &Clock{jumped: make(chan struct{})} }

// Forward puts it forward. Whoever sleeps until a time that has come wakes.
func (c *Clock) Forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	close(c.jumped)
	c.jumped = make(chan struct{})
}

func (c *Clock) look() (time.Time, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().UTC().Add(c.ahead), c.jumped
}

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	now, _ := c.look()
	return now
}

// Sleep implements clock.Clock.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	now, jumped := c.look()
	until := now.Add(d)
	for until.After(now) {
		timer := time.NewTimer(until.Sub(now))
		select {
		case <-timer.C:
		case <-jumped:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
		now, jumped = c.look()
	}
	return nil
}
