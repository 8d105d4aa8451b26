// Package service holds Perdure's use cases: one method per operation of the API. It knows no transport and no SQL.
//
// # One session, one live object
//
// Whatever happens to a session goes through its live object, which exists from the first use, or the start of a daemon that finds
// something to take up, until the session is deleted or the daemon ends. Being listed makes none. It holds the lease, follows the log with a session.Tracker, and serialises two things:
//
//   - appends, so that the tracker sees events in order (live.appendMu);
//   - operations on the workspace: start, pause, suspend, stop, resume, checkpoint, rollback, delete (live.ops). Commands and messages do not
//     take it, unless the workspace has to be woken for them.
//
// Lock order: ops before appendMu before mu.
//
// # Crash safety
//
// An operation that both destroys something and makes something writes a journal entry (package journal.go) before its first
// irreversible step and removes it after the events that tell of it are durable. Recover finishes or reverts what it finds. Everything
// else is ordered so that a crash leaves only things that nobody refers to, which Sweep removes.
package service
