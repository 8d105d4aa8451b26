package service

import (
	"errors"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// diskError names the one cause of failing writes that people can do something about.
func diskError(err error, format string, args ...any) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e := errdefs.New(errdefs.Exhausted, event.CodeDiskFull, format, args...)
		e.Err = err
		return e.WithHint("free some space on the data directory's disk and try again; nothing was lost")
	}
	return errdefs.Wrap(err, errdefs.Internal, "io_error", format, args...)
}
