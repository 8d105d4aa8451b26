package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the database/sql driver

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

//go:embed migrations/*.sql
var migrations embed.FS

// The names of the files in the data directory.
const (
	FileName = "perdure.db"
	lockName = "perdure.lock"
)

// readers is how many reads can run at once. Each holds a page cache of about 2 MB.
const readers = 4

// Options say where a store is and what it uses.
type Options struct {
	Dir    string       // the data directory; made (0700) if missing
	Clock  clock.Clock  // stamps events; nil: the machine's
	Logger *slog.Logger // nil: silent
}

// Store is an event.Log with its rows. All methods may be called from any goroutine.
type Store struct {
	clock clock.Clock
	log   *slog.Logger
	run   id.Lease // this opening of the store
	lock  *os.File
	rdb   *sql.DB
	read  *db.Queries
	write *writer
	hub   *hub

	closeOnce sync.Once
	closeErr  error
}

var _ event.Log = (*Store)(nil)

// Open opens the store in a data directory, making or upgrading it as needed. It fails with data_locked when another process
// has it open, data_exposed when others may write into the directory, data_newer when a later version of Perdure wrote it, log_corrupt when
// it is damaged. Ending ctx later does not close the store; Close does.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	s := &Store{clock: o.Clock, log: o.Logger, hub: newHub(), run: id.NewLease()}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the data directory cannot be made")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "store_io", "the data directory cannot be found")
	}
	if s.lock, err = lockDir(filepath.Join(dir, lockName)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	path := filepath.Join(dir, FileName)
	if err := private(dir, path, s.log); err != nil {
		return nil, err
	}
	if err := s.openWriter(ctx, path); err != nil {
		return nil, translate(err)
	}
	if s.rdb, err = sql.Open("sqlite", dsn(path, "mode", "ro", "_pragma", "busy_timeout(10000)", "_pragma", "query_only(1)")); err != nil {
		return nil, translate(err)
	}
	s.rdb.SetMaxOpenConns(readers)
	s.rdb.SetMaxIdleConns(readers)
	if s.read, err = db.Prepare(ctx, s.rdb); err != nil {
		return nil, translate(err)
	}
	if err := s.sweep(ctx); err != nil { // whoever wants to make room on a full disk needs a daemon
		s.log.Warn("cannot forget what has expired", "error", err)
	}
	return s, nil
}

func (s *Store) openWriter(ctx context.Context, path string) error {
	wdb, err := sql.Open("sqlite", dsn(path, "_pragma", "busy_timeout(10000)", "_pragma", "journal_mode(WAL)", "_pragma", "synchronous(FULL)",
		"_pragma", "wal_autocheckpoint(4000)", "_pragma", "journal_size_limit(67108864)", "_pragma", "cache_size(-16000)"))
	if err != nil {
		return err
	}
	wdb.SetMaxOpenConns(1)
	err = migrate(ctx, wdb)
	if err == nil {
		s.write, err = startWriter(ctx, wdb)
	}
	if err != nil {
		return errors.Join(err, wdb.Close())
	}
	return nil
}

// dsn makes a data source name of a path, which may hold any character, and pairs of parameters.
func dsn(path string, params ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// migrate brings the schema up to date. It never touches a schema that is newer than it knows.
func migrate(ctx context.Context, wdb *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, wdb, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > target {
		return errdefs.New(errdefs.Conflict, store.CodeDataNewer, "the data directory was written by a newer version of Perdure (schema %s, this version knows %s)",
			strconv.FormatInt(current, 10), strconv.FormatInt(target, 10)).
			WithHint("run that version or a later one, or choose another directory with --data")
	}
	_, err = p.Up(ctx)
	return err
}

// Close commits what was accepted, then closes. Calls that come later fail with store_closed; subscriptions end with that
// error. It may be called more than once and returns when all is done.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.hub.close()
		var errs []error
		if s.write != nil {
			s.write.stop()
		}
		if s.read != nil {
			errs = append(errs, s.read.Close())
		}
		if s.rdb != nil {
			errs = append(errs, s.rdb.Close())
		}
		if s.write != nil {
			// Last, since the last connection to close moves the write-ahead log into the main file.
			errs = append(errs, s.write.close())
		}
		if s.lock != nil {
			errs = append(errs, s.lock.Close())
		}
		s.closeErr = translate(errors.Join(errs...))
	})
	return s.closeErr
}
