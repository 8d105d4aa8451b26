// Package inside is the guest: the one process inside a sandbox that starts and supervises all others.
//
// It runs as PID 1 (or as a subreaper, where the sandbox is no more than a process), dials out to its host's unix socket, and
// dials again for ever when the connection ends. See package wire for what is said on it.
//
// # Guarantees
//
//   - A command id runs once. Asked to start it again, the guest answers with the one that it has.
//   - Output is kept until the host has it. When the buffer of a stream is full, its writer waits; nobody else does.
//   - An end is reported with the exit code or the signal that the kernel gave, after all output from before the end.
//   - Children that outlive their command keep its streams: what they write later lands in them too.
//   - A timeout kills the process group and every descendant that can be found, and the command has ended then.
//   - Orphans are reaped. The status of an own child is never taken by that.
//   - Each request runs in its own goroutine, in which a panic is contained. No request waits for another, but for commands of
//     one interpreter, which run one at a time.
//
// # Locks
//
// Guest.mu guards the tables, outbox.mu every stream and all that waits to be sent, interp.mu one interpreter's queue. Order:
// Guest.mu, interp.mu, outbox.mu; none is held over a system call that can block.
package inside
