package layer

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp is what tells whether a file has changed: every write to a file or its metadata moves its change time.
type Stamp struct {
	Ino    uint64
	Size   int64
	Mtime  int64 // nanoseconds since 1970
	Ctime  int64 // nanoseconds since 1970
	Mode   uint32
	UID    uint32
	GID    uint32
	Rdev   uint64
	Nlink  uint64
	Opaque bool // a directory that hides what is below it
}

// IsDir reports whether the stamp is a directory's.
func (s Stamp) IsDir() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsWhiteout reports whether the stamp is that of a deleted path.
func (s Stamp) IsWhiteout() bool { return s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == 0 }

// Index is the state of an upper directory at one moment: each path below it, without a leading slash, and its stamp.
type Index struct {
	// Taken is when the scan began. A file whose change time is not older than this by racyWindow may change again without
	// its stamp moving, so it counts as changed at the next look.
	Taken  time.Time
	Stamps map[string]Stamp
}

// racyWindow is longer than a tick of any kernel configuration (10 ms at 100 Hz), by which file times may advance.
const racyWindow = 20 * time.Millisecond

// unchanged reports whether path, whose stamp is now s, is surely as it was when the index was made.
func (x *Index) unchanged(path string, s Stamp) bool {
	old, ok := x.Stamps[path]
	return ok && old == s && s.Ctime < x.Taken.Add(-racyWindow).UnixNano()
}

// Scan reads the state of dir.
func Scan(ctx context.Context, dir string) (Index, error) {
	r, err := perform(ctx, job{Do: "scan", Dirs: []string{dir}})
	return r.Index, err
}

func scan(ctx context.Context, dir string) (Index, error) {
	x := Index{Taken: time.Now(), Stamps: map[string]Stamp{}}
	err := walk(ctx, dir, func(path string, s Stamp) error {
		x.Stamps[path] = s
		return nil
	})
	return x, err
}

func stampOf(path string) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Stamp{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return stampFrom(&st, st.Mode&unix.S_IFMT == unix.S_IFDIR && isOpaque(path)), nil
}

func stampFrom(st *unix.Stat_t, opaque bool) Stamp {
	s := Stamp{
		Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
		Mode: st.Mode, UID: st.Uid, GID: st.Gid, Rdev: st.Rdev, Nlink: uint64(st.Nlink),
	}
	if s.IsDir() {
		s.Opaque = opaque
		s.Nlink = 0 // counts subdirectories, or nothing at all, depending on the file system
		s.Size = 0
	}
	return s
}

// parent returns the path of the directory that holds path, and false for a path at the top.
func parent(path string) (string, bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", false
	}
	return path[:i], true
}
