package sqlite

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"perdure.dev/perdure/internal/errdefs"
)

// private makes the database readable for its owner alone, whoever made the directory around it. No umask is set for that: the shims
// that this process starts would inherit it, and what runs in them.
func private(dir, path string, log *slog.Logger) error {
	info, err := os.Stat(dir)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the data directory cannot be found")
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o022 != 0:
		return errdefs.New(errdefs.Denied, "data_exposed", "others may write into the data directory %s (mode %04o)", dir, mode).
			WithHint("chmod 700 %s, or choose another directory with --data", dir)
	case mode&0o055 != 0:
		log.Warn("others may look into the data directory; its files are private all the same", "dir", dir, "hint", "chmod 700 "+dir)
	}
	// SQLite gives its other files the mode of the main one, so that has to be there, with its mode, before SQLite makes it.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the database cannot be opened")
	}
	if err := f.Close(); err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the database cannot be opened")
	}
	for _, suffix := range []string{"", "-wal", "-shm"} { // those that an older version made
		if err := os.Chmod(path+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the database cannot be made private")
		}
	}
	return nil
}
