// Package link is the host end of a sandbox's guest: it listens on a unix socket, the guest dials, and the sandbox's
// commands and files are served from here.
//
// # Guarantees
//
//   - A request outlives its connection: it is repeated on the next one until the guest has answered, and the guest runs it once.
//   - Output is in the spool before the guest is told that it may forget it. Nothing is lost or doubled when a connection breaks,
//     whatever was in flight.
//   - Start is idempotent in the exec id, across connections, restarts of this process and restores.
//   - Reading about commands (Status, List, Wait, Output) never asks the guest.
//   - A guest that was restored to an earlier time is recognised by what it still holds: streams go on from its place, and
//     commands it does not know are lost, with that as their cause.
//   - What comes from the guest is data from a stranger: a frame that does not parse ends the connection, no more.
//
// # Goroutines
//
// One accepts. Each connection has a reader, which alone appends to the spool, and a writer. At most one connection is live; a
// new one takes over when the reader of the old one has ended. Lock order: Link.mu before conn.mu.
package link
