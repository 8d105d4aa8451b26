package spool

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Options tune a spool.
type Options struct {
	// Cap is the most that is kept of one stream, in bytes; what comes after is dropped and a note says so. 0: no limit.
	Cap int64
	// Total is the same for all streams together, older generations included. When it is reached each stream still gets its first Floor
	// bytes: a session goes on, and its commands can be told apart. 0: no limit.
	Total int64
	Floor int64
	Clock clock.Clock // nil: the machine's
}

// Spool is an open spool directory.
type Spool struct {
	dir  string
	opts Options

	stored atomic.Int64 // bytes of all streams; counted if there is a total

	mu      sync.Mutex // guards records
	records map[id.Exec]*Record
}

// Open opens or makes the spool in dir. Records keep the state that they had; see MarkLost for those that still say running.
func Open(dir string, opts Options) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, writeError(err)
	}
	return Look(dir, opts)
}

// Look opens the spool in dir as it is. It makes nothing, so that whoever asks about a session that is being deleted does not bring its
// directory back: a spool that is not there is empty.
func Look(dir string, opts Options) (*Spool, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errdefs.Wrap(err, errdefs.Internal, "spool_read", "reading the spool %s", dir)
	}
	s := &Spool{dir: dir, opts: opts, records: map[id.Exec]*Record{}}
	for _, e := range entries {
		if !e.IsDir() || !id.ValidExternal(e.Name()) {
			continue
		}
		s.records[id.Exec(e.Name())] = openRecord(s, id.Exec(e.Name()))
	}
	if err := s.count(); err != nil {
		return nil, err
	}
	return s, nil
}

// count measures what the streams take on the disk.
func (s *Spool) count() error {
	if s.opts.Total == 0 {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "*", "std*"))
	if err != nil {
		return err
	}
	var all int64
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				all += min(info.Size(), st.Blocks*512) // gaps take nothing
			}
		}
	}
	s.stored.Store(all)
	return nil
}

// limit returns up to which offset a stream may grow that stands at offset, and what bounds it.
func (s *Spool) limit(offset int64) (int64, string) {
	limit, what := int64(math.MaxInt64), ""
	if s.opts.Cap > 0 {
		limit, what = s.opts.Cap, "this stream"
	}
	if s.opts.Total > 0 {
		if most := max(offset+s.opts.Total-s.stored.Load(), s.opts.Floor); most < limit {
			limit, what = most, "the output of all commands"
		}
	}
	return limit, what
}

// Reload reads everything anew, after another process has written to the directory. Readers that follow a stream go on.
func (s *Spool) Reload() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Internal, "spool_read", "reading the spool %s", s.dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		exec := id.Exec(e.Name())
		if r, ok := s.records[exec]; ok {
			r.reload()
		} else if e.IsDir() && id.ValidExternal(e.Name()) {
			s.records[exec] = openRecord(s, exec)
		}
	}
	return s.count()
}

// Dir returns the spool's directory.
func (s *Spool) Dir() string { return s.dir }

// Create returns the record of a command, making it in state running if there is none; made says which. Error: exec_invalid.
func (s *Spool) Create(spec sandbox.ExecSpec) (r *Record, made bool, err error) {
	if !id.ValidExternal(string(spec.ID)) {
		return nil, false, errdefs.New(errdefs.Invalid, "exec_invalid", "%q is no exec id", spec.ID).
			WithHint("use 1 to %d letters, digits, '_', '-' and '.', not starting with a dot", id.MaxExternal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.records[spec.ID]; ok {
		return r, false, nil
	}
	r = newRecord(s, spec)
	if err := os.Mkdir(r.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, false, writeError(err)
	}
	if err := r.journal.write(r.dir, &r.meta); err != nil {
		r.journal.close()
		return nil, false, err
	}
	s.records[spec.ID] = r
	return r, true, nil
}

// Get returns the record of a command. Error: exec_not_found.
func (s *Spool) Get(exec id.Exec) (*Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.records[exec]; ok {
		return r, nil
	}
	return nil, errdefs.New(errdefs.NotFound, "exec_not_found", "there is no command %q", exec)
}

// Has reports whether the spool in dir knows a command, without opening it.
func Has(dir string, exec id.Exec) bool {
	_, err := os.Lstat(filepath.Join(dir, string(exec)))
	return err == nil
}

// Records returns all records, oldest first.
func (s *Spool) Records() []*Record {
	s.mu.Lock()
	all := make([]*Record, 0, len(s.records))
	for _, r := range s.records {
		all = append(all, r)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *Record) int {
		return cmp.Or(a.started().Compare(b.started()), cmp.Compare(a.id, b.id))
	})
	return all
}

// List returns the state of every command, oldest first.
func (s *Spool) List() []sandbox.ExecStatus {
	records := s.Records()
	list := make([]sandbox.ExecStatus, len(records))
	for i, r := range records {
		list[i] = r.Status()
	}
	return list
}

// MarkLost turns every running record into a lost one. It returns the ids of those.
func (s *Spool) MarkLost(cause string) ([]id.Exec, error) {
	var lost []id.Exec
	var errs []error
	for _, r := range s.Records() {
		did, err := r.Lose(cause)
		if did {
			lost = append(lost, r.id)
		}
		errs = append(errs, err)
	}
	return lost, errors.Join(errs...)
}

// Close closes the files. Readers that follow a stream end with an error.
func (s *Spool) Close() error {
	for _, r := range s.Records() {
		r.close()
	}
	return nil
}

func (s *Spool) path(exec id.Exec) string { return filepath.Join(s.dir, string(exec)) }

// writeError says disk_full where that is the reason.
func writeError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errdefs.Wrap(err, errdefs.Exhausted, "disk_full", "the disk that holds the output of commands is full")
	}
	return errdefs.Wrap(err, errdefs.Internal, "spool_write", "writing the output of a command")
}
