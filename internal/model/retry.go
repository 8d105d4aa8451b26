package model

import (
	"context"
	"math/rand/v2"
	"time"

	"perdure.dev/perdure/internal/clock"
)

// Policy says how often and how patiently a model is asked again.
type Policy struct {
	Attempts int           // in all; at least 1
	Base     time.Duration // before the second attempt; doubled for each further one
	Max      time.Duration // the longest wait of our own choosing
	// MaxRetryAfter is the longest wait that a provider may ask for. Beyond it the call fails at once, so that a session does
	// not look alive while it sleeps for hours.
	MaxRetryAfter time.Duration
}

// DefaultPolicy waits about a minute in all.
func DefaultPolicy() Policy {
	return Policy{Attempts: 6, Base: time.Second, Max: 30 * time.Second, MaxRetryAfter: 10 * time.Minute}
}

// delay returns how long to wait after the given failed attempt (from 1), with jitter from random (in [0, 1)). The jitter
// only ever adds to what the provider asked for, and takes up to half from our own choice.
func (p Policy) delay(attempt int, e *Error, random float64) (time.Duration, bool) {
	own := p.Base
	for range attempt - 1 {
		own = min(own*2, p.Max)
	}
	own = min(own, p.Max)
	if e.RetryAfter > 0 {
		if p.MaxRetryAfter > 0 && e.RetryAfter > p.MaxRetryAfter {
			return 0, false
		}
		return e.RetryAfter + time.Duration(random*float64(own)/2), true
	}
	return own - time.Duration(random*float64(own)/2), true
}

// Attempt observes the attempts of Retry. Either function may be nil; an error from one ends Retry.
type Attempt struct {
	Before func(attempt int) error
	Failed func(attempt int, err *Error, again bool, delay time.Duration) error
}

// Retry calls ask until it succeeds, fails for good, or the policy is used up, and waits in between. ask gets the number of the
// attempt, from 1.
func Retry(ctx context.Context, clk clock.Clock, p Policy, obs Attempt, ask func(ctx context.Context, attempt int) (Response, error)) (Response, error) {
	for attempt := 1; ; attempt++ {
		if obs.Before != nil {
			if err := obs.Before(attempt); err != nil {
				return Response{}, err
			}
		}
		resp, err := ask(ctx, attempt)
		if err == nil {
			return resp, nil
		}
		e := AsError(err)
		if ctx.Err() != nil {
			return Response{}, NewError(Canceled, context.Cause(ctx), "the model call was canceled")
		}
		again := e.Class.Retryable() && attempt < p.Attempts
		var wait time.Duration
		if again {
			wait, again = p.delay(attempt, e, rand.Float64())
		}
		if obs.Failed != nil {
			if oerr := obs.Failed(attempt, e, again, wait); oerr != nil {
				return Response{}, oerr
			}
		}
		if !again {
			return Response{}, e
		}
		if err := clk.Sleep(ctx, wait); err != nil {
			return Response{}, NewError(Canceled, err, "the model call was canceled")
		}
	}
}
