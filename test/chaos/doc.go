// Package chaos kills the daemon, the shims and the sandboxes of the real binaries at every point that matters, and checks what is left.
//
// The daemon is built with the tag chaos, with which it dies by SIGKILL at a named point on request (see cmd/perdure/chaos.go). For each
// operation a first pass records the points that it goes through; then the operation is done once for each of them, the daemon dies
// there, another one is started, and these must hold:
//
//   - Every event that a client was told of is in the log, and perdure verify finds nothing wrong.
//   - The operation has happened or it has not; if its caller was told that it has, it has.
//   - A Python variable, a file and the transcript's position agree.
//   - No command ran twice, and every command and tool call has one end.
//   - Every process, directory and checkpoint on the machine belongs to a session that is listed; after rm nothing is left.
//
// By default a fixed sample of the points is walked, in which each named point is met; PERDURE_CHAOS=full walks all.
package chaos
