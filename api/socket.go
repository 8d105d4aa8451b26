package api

// SocketName is the daemon's Unix socket in its data directory.
const SocketName = "perdure.sock"
