// Package client is the Go client of Perdure's API, over a Unix socket or over TCP with a token.
//
// # Guarantees
//
//   - A request that may be repeated is repeated when its connection breaks, for Options.RetryFor: reads, and every POST, which carries an
//     Idempotency-Key of its own. So a daemon that restarts in between is not noticed, and nothing happens twice. Where none has
//     answered yet, Options.ReachFor is the limit.
//   - A kept-alive connection that the daemon has closed meanwhile breaks no request.
//   - Events yields every event exactly once, in order, across any number of broken connections. Deltas and comments do not move the cursor;
//     a gap in the seqs counts as a broken connection.
//   - Attach delivers every byte of output once and in order, and sends every byte of input once, across broken connections.
//   - Errors of the API are *Error, with kind, code and hint. An unreachable daemon is daemon_unreachable, kind unavailable.
//
// A Client may be used by any number of goroutines.
package client
