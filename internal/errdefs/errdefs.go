// Package errdefs is the closed set of error kinds that every Perdure package speaks.
//
// A Kind decides the HTTP status and the exit code, in one table (see Kind.Status and Kind.ExitCode). A Code is finer: a
// stable snake_case word that programs may match on, such as "session_not_found". The message says what is wrong and the
// hint what to do next; both are for people and may change.
package errdefs

import (
	"errors"
	"fmt"
)

// Kind classes an error by what the caller can do about it.
type Kind string

// The kinds. There are no others; an error without one counts as Internal.
const (
	Invalid     Kind = "invalid"     // the request is wrong and stays wrong
	NotFound    Kind = "not_found"   // the named thing does not exist
	Conflict    Kind = "conflict"    // wrong state, taken name, stale lease or sequence number
	Denied      Kind = "denied"      // not permitted, or needs an approval first
	Timeout     Kind = "timeout"     // a limit of time was reached
	Unavailable Kind = "unavailable" // something needed is missing or down; trying again later may help
	Exhausted   Kind = "exhausted"   // a quota or the disk is full
	Corrupt     Kind = "corrupt"     // stored data failed verification
	Internal    Kind = "internal"    // a fault of Perdure's own
)

type kindRow struct{ status, exit int }

var kinds = map[Kind]kindRow{
	Invalid:     {400, 2},
	NotFound:    {404, 3},
	Conflict:    {409, 4},
	Denied:      {403, 5},
	Timeout:     {504, 6},
	Unavailable: {503, 7},
	Exhausted:   {507, 1},
	Corrupt:     {500, 1},
	Internal:    {500, 1},
}

// Status returns the HTTP status of the kind.
func (k Kind) Status() int {
	if r, ok := kinds[k]; ok {
		return r.status
	}
	return kinds[Internal].status
}

// ExitCode returns the command line's exit code for the kind.
func (k Kind) ExitCode() int {
	if r, ok := kinds[k]; ok {
		return r.exit
	}
	return kinds[Internal].exit
}

// Error is an error with a kind, a stable code, and a hint about what to do next.
type Error struct {
	Kind    Kind
	Code    string // stable, snake_case
	Message string // what is wrong
	Hint    string // what to do next; may be empty
	Err     error  // the cause; may be nil
}

// Error returns the message followed by the cause, if there is one.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error of the same code, so that errors.Is works with the values that New returns.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// New returns an error of the given kind and code; format and args make its message.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause. It returns nil when err is nil.
func Wrap(err error, kind Kind, code, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// WithHint returns a copy of e that says what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// KindOf returns the kind of the outermost *Error in err's chain, or Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// CodeOf returns the code of the outermost *Error in err's chain, or "internal".
func CodeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return "internal"
}

// HintOf returns the first hint in err's chain, or "".
func HintOf(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
