// Package servertest is a backend in memory, and a daemon's transport around it, for the tests of the server, the client and the
// command line. Its commands are real processes of this machine and its files real files below a directory; they survive Daemon.Kill, as those in
// a sandbox do.
package servertest
