// Package store defines what is kept beside the event logs: the rows that are folded from them (sessions, checkpoints, the
// layers in use), and the answers to requests that carried an idempotency key. Implementations live below it, in a folder
// named after the technology; each also implements event.Log.
//
// # Guarantees
//
//   - Rows folded from a log change in the transaction that appends to it, by Project alone. They can be thrown away and
//     folded again, and Verify does so to compare.
//   - A session that was deleted is gone for everybody but its forks: its log stays readable until the last session that
//     descends from it is deleted too.
package store
