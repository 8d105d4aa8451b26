// Package shim is both ends of the process that stands between the daemon and one sandbox.
//
// One shim runs per sandbox, in a session of its own, so that it outlives the daemon. It drives an Engine (what boots, pauses, saves
// and destroys the sandbox), holds the link to the guest inside, and serves HTTP on a Unix socket in the sandbox's state directory.
// Client is the daemon's end: it implements sandbox.Sandbox over that socket.
//
// # Guarantees
//
//   - A shim lives until Destroy or until its state directory is removed. The daemon's death does not matter to it.
//   - A spare, which has no sandbox's config yet, lives until the daemon that made it closes it or dies. See spare.go.
//   - All mounts are made in the shim's own mount namespace and the network namespace has no name, so when the processes are gone, so
//     are these.
//   - The shim holds a lock on STATEDIR/lock from before it runs any code until its process is gone. Whoever can take the lock knows
//     that the shim is dead; process ids are never trusted for that.
//   - STATEDIR/record.json says what the shim started, with start times, and is on disk before the sandbox can answer. So Recover can
//     end whatever a dead shim left.
//   - Lifecycle calls are serialised. A checkpoint whose caller goes away is abandoned and the sandbox runs on.
//   - When a sandbox dies by itself the shim stays to answer: status (with the cause), and everything the spool knows.
//   - Errors cross the socket with kind, code, message and hint.
//
// # Files in the state directory
//
//	config.json   what to run, written by the daemon before it starts the shim
//	record.json   what runs, written by the shim
//	lock          held by the shim
//	shim.sock     the HTTP socket
//	shim.log      the log of the shim and its engine
package shim
