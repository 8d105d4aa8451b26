package model

import (
	"context"
	"errors"
	"time"
)

// ErrIdle is the cause of a context that WatchIdle canceled.
var ErrIdle = errors.New("nothing arrived for too long")

// WatchIdle returns a context that is canceled with ErrIdle when alive has not been called for d. stop releases the timer.
// Without it a stream that has stalled would hold a session for ever.
func WatchIdle(ctx context.Context, d time.Duration) (watched context.Context, alive, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(d, func() { cancel(ErrIdle) })
	return watched, func() { t.Reset(d) }, func() { t.Stop(); cancel(nil) }
}

// StreamError classes an error of a streaming call that was watched by WatchIdle: outer is the caller's context.
func StreamError(outer, watched context.Context, err error) *Error {
	switch {
	case outer.Err() != nil:
		return NewError(Canceled, context.Cause(outer), "the model call was canceled")
	case errors.Is(context.Cause(watched), ErrIdle):
		return NewError(Network, ErrIdle, "the model's answer stalled")
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return NewError(Network, err, "the connection to the model failed")
}
