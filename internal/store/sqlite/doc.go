// Package sqlite keeps logs and rows in one SQLite file. It needs no C compiler and no server.
//
// # Guarantees
//
//   - What Append (or any other writing call) has returned without error survives SIGKILL and a power cut: the write-ahead
//     log is synced before the call returns (journal_mode=WAL, synchronous=FULL).
//   - One goroutine writes. It takes whatever calls wait into one transaction and syncs once for all of them (group commit).
//     A call that is refused or fails takes nothing with it: the others are committed without it.
//   - Reads run on connections of their own that cannot write, never wait for the writer, and see committed data only.
//   - One process at a time has the data directory open, guarded by a lock on a file that the kernel drops with the process.
//   - When the disk is full, calls fail with disk_full, what was stored stays, and later calls work when there is room again.
//   - A session that nobody touches costs no memory: rows are read when they are needed.
//
// # Goroutines
//
// Open starts the writer, which Close ends after everything that was accepted is committed. Nothing else runs by itself.
// The hub's lock is a leaf: nothing is called while it is held.
package sqlite

//go:generate go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate
