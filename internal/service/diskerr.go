package service

import (
	"errors"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// freeing calls what frees space by writing first. On a full disk it gets the reserve for that.
func (s *Service) freeing(write func() error) error {
	err := write()
	if errdefs.CodeOf(err) == event.CodeDiskFull && s.cfg.Dirs.SpendReserve() {
		s.cfg.Logger.Warn("the disk is full; the reserve is spent on deleting")
		err = write()
	}
	return err
}

// diskError names the one cause of failing writes that people can do something about.
func diskError(err error, format string, args ...any) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e := errdefs.New(errdefs.Exhausted, event.CodeDiskFull, format, args...)
		e.Err = err
		return e.WithHint("free some space on the data directory's disk and try again; nothing was lost")
	}
	return errdefs.Wrap(err, errdefs.Internal, "io_error", format, args...)
}
