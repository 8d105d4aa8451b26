package sqlite

import (
	"errors"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/store"
)

// translate turns an error of the database into one that callers can act on. Errors that have a code already pass through.
func translate(err error) error {
	var known *errdefs.Error
	var se *sqlite.Error
	if err == nil || errors.As(err, &known) || !errors.As(err, &se) {
		return err
	}
	// The low byte of a result code is its class (https://www.sqlite.org/rescode.html).
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return wrap(err, errdefs.Exhausted, event.CodeDiskFull, "the disk is full; nothing was stored", "free some space and try again; what was stored before is safe")
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return corrupt(err)
	case sqlite3.SQLITE_CONSTRAINT:
		if strings.Contains(se.Error(), "sessions.name") {
			return wrap(err, errdefs.Conflict, event.CodeNameTaken, "the name is taken", "choose another name")
		}
		return wrap(err, errdefs.Invalid, event.CodeInvalid, "an id is in use already", "")
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return wrap(err, errdefs.Unavailable, "store_io", "the database cannot be read or written", "check the data directory: is its disk mounted, writable and healthy?")
	}
	return wrap(err, errdefs.Internal, "store_failed", "the database refused a statement", "")
}

func corrupt(err error) error {
	return wrap(err, errdefs.Corrupt, event.CodeLogCorrupt, "the database is damaged",
		"stop the daemon, keep a copy of the data directory, and restore a backup; perdure verify tells which sessions are whole")
}

func wrap(err error, kind errdefs.Kind, code, message, hint string) error {
	e := errdefs.New(kind, code, "%s", message)
	e.Err, e.Hint = err, hint
	return e
}

func notFound(name string) error {
	return errdefs.New(errdefs.NotFound, event.CodeSessionNotFound, "no session %q", name).WithHint("perdure ls lists the sessions")
}

func closed() error {
	return errdefs.New(errdefs.Unavailable, store.CodeStoreClosed, "the store is closed")
}
