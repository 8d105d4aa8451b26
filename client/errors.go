package client

import "perdure.dev/perdure/internal/errdefs"

// Error is what the methods of a Client fail with: a kind, a stable code (docs/errors.md), a message and a hint. Use errors.As.
type Error = errdefs.Error

// Kind classes an Error by what the caller can do about it.
type Kind = errdefs.Kind

// The kinds.
const (
	Invalid     = errdefs.Invalid
	NotFound    = errdefs.NotFound
	Conflict    = errdefs.Conflict
	Denied      = errdefs.Denied
	Timeout     = errdefs.Timeout
	Unavailable = errdefs.Unavailable
	Exhausted   = errdefs.Exhausted
	Corrupt     = errdefs.Corrupt
	Internal    = errdefs.Internal
)
