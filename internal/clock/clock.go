// Package clock lets time be injected. Code that waits or stamps takes a Clock, so that tests need not sleep.
package clock

import (
	"context"
	"time"
)

// Clock tells the time and waits.
type Clock interface {
	// Now returns the wall clock in UTC.
	Now() time.Time
	// Sleep waits for d, or until ctx ends, in which case it returns the cause.
	Sleep(ctx context.Context, d time.Duration) error
}

// System is the machine's clock.
type System struct{}

// Now returns the current time in UTC.
func (System) Now() time.Time { return time.Now().UTC() }

// Sleep waits for d, or until ctx ends.
func (System) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
