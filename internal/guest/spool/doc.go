// Package spool keeps what the commands of a session wrote, outside their sandbox.
//
// A spool is a directory with one directory per command, named by its exec id:
//
//	DIR/EXEC/meta.json   what the command is and how it stands: a JSON object a line, of which the last whole one counts
//	DIR/EXEC/stdout      its output, byte n of the stream at byte n of the file
//	DIR/EXEC/stderr
//	DIR/EXEC/stdout.1    an older generation of the stream
//
// # Guarantees
//
//   - A byte that was appended stays at its offset for every reader, and survives the client, the daemon, the shim and the sandbox.
//   - Several readers may follow a stream while it grows. A spool has one writer: the process that opened it last.
//   - When a rollback or restore takes the guest back to a time when it had produced less, the longer stream is kept aside as
//     an older generation and the current one goes on from where the timelines part. Bytes are compared, so the
//     parting is found even where offsets alone would hide it.
//   - Missing bytes are never silently joined: a gap is recorded, and begins with a line that says so.
//   - A record that said "running" becomes "lost" with a cause (MarkLost), and never gets an invented exit code.
//
// A session can be given a limit for each stream and one for all of them together; a note in the stream says where it was cut.
//
// Files are not synced: a crash of the whole machine ends the sandbox and its commands too. A record that such a crash
// has damaged is listed as lost.
//
// Methods may be called at the same time. Lock order: Spool.mu before Record.mu.
package spool
