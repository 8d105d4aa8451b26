package model

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"perdure.dev/perdure/internal/errdefs"
)

// Class says what went wrong with a model call, and so whether asking again may help.
type Class string

// The classes.
const (
	RateLimited    Class = "rate_limited"     // RetryAfter may be set
	Overloaded     Class = "overloaded"       // the provider's own fault: 5xx, overloaded
	Auth           Class = "auth"             // key missing, wrong or without rights
	BadRequest     Class = "bad_request"      // the request is wrong and stays wrong
	ContextTooLong Class = "context_too_long" // the conversation does not fit the window
	Network        Class = "network"          // no connection, or the stream was cut
	Canceled       Class = "canceled"         // ctx ended
)

// Retryable reports whether the same request may succeed later.
func (c Class) Retryable() bool { return c == RateLimited || c == Overloaded || c == Network }

func (c Class) kind() errdefs.Kind {
	switch c {
	case RateLimited, Overloaded, Network:
		return errdefs.Unavailable
	case Auth:
		return errdefs.Denied
	case ContextTooLong:
		return errdefs.Exhausted
	case Canceled:
		return errdefs.Conflict
	default:
		return errdefs.Invalid
	}
}

// Error is a failed model call. It unwraps to an *errdefs.Error with the code "model_" + Class.
type Error struct {
	Class      Class
	RetryAfter time.Duration // what the provider asked for; 0: nothing
	Status     int           // HTTP status, if there was an answer
	err        *errdefs.Error
}

// NewError returns an error of the given class. cause may be nil.
func NewError(class Class, cause error, format string, args ...any) *Error {
	e := errdefs.New(class.kind(), "model_"+string(class), format, args...)
	e.Err = cause
	switch class {
	case Auth:
		e.Hint = "check the API key of this provider in the daemon's environment"
	case RateLimited, Overloaded, Network:
		e.Hint = "send the session a message to try again"
	case ContextTooLong:
		e.Hint = "set limits.context_tokens to the model's real window"
	}
	return &Error{Class: class, err: e}
}

// Error returns the message and its cause.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the *errdefs.Error.
func (e *Error) Unwrap() error { return e.err }

// AsError returns err as an *Error. What no provider has classed counts as Canceled when it comes from a context, as Network when
// it comes from the network, and as BadRequest otherwise, since asking again would not change it.
func AsError(err error) *Error {
	var e *Error
	var ne net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return NewError(Canceled, err, "the model call was canceled")
	case errors.As(err, &ne):
		return NewError(Network, err, "the model cannot be reached")
	default:
		return NewError(BadRequest, err, "the model call failed")
	}
}

// FromStatus classes an HTTP error answer. kind and message are the provider's own words for it.
func FromStatus(status int, header http.Header, kind, message string, now time.Time) *Error {
	text := strings.TrimSpace(fmt.Sprintf("the model answered %d %s", status, kind))
	if message != "" {
		text += ": " + message
	}
	e := NewError(classOf(status, kind, message), nil, "%s", text)
	e.Status = status
	e.RetryAfter = RetryAfter(header, now)
	return e
}

func classOf(status int, kind, message string) Class {
	low := strings.ToLower(kind + " " + message)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(low, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("insufficient_quota"):
		return Auth // an empty account: 429 like a rate limit, but waiting does not help
	case status == http.StatusTooManyRequests, has("rate_limit"):
		return RateLimited
	case has("context_length", "context length", "maximum context", "context window", "prompt is too long"),
		status == http.StatusRequestEntityTooLarge:
		return ContextTooLong
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired,
		has("authentication_error", "permission_error"):
		return Auth
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, has("overloaded", "server_error", "api_error"):
		return Overloaded
	default:
		return BadRequest
	}
}

// RetryAfter reads the Retry-After header (RFC 9110 §10.2.3: seconds or a date) and the finer retry-after-ms.
// It returns 0 when there is none or it has passed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if h == nil {
		return 0
	}
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(s * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil && t.After(now) {
		return t.Sub(now)
	}
	return 0
}
