package layer

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// keptOpen is of how many directories, at the top of a tree and at the end of the way down, the descriptors are kept while it is measured.
const keptOpen = 64

// Usage is what a tree takes, a file with several names once.
type Usage struct {
	Bytes int64 // on disk
	Files int64 // and directories, but for the top
}

// DiskUsage measures what is below dir. A program may be at work there, and
// may want not to be measured: a tree may be deeper than a path is long, or than this process may open files. So no paths are made, and
// the way back up leads over "..", where it is the directory that was left. What vanishes or is moved meanwhile is passed over.
func DiskUsage(ctx context.Context, dir string) (Usage, error) {
	r, err := perform(ctx, job{Do: "usage", Dirs: []string{dir}})
	return Usage{r.Bytes, r.Files}, err
}

func diskUsage(ctx context.Context, dir string) (Usage, error) {
	top, err := openBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return Usage{}, err
	}
	m := measure{seen: map[uint64]bool{}}
	defer m.close()
	if err := m.enter(top); err != nil {
		return Usage{}, err
	}
	for len(m.way) > 0 {
		if ctx.Err() != nil {
			return m.total, context.Cause(ctx)
		}
		at := &m.way[len(m.way)-1]
		if len(at.dirs) == 0 {
			if err := m.leave(); err != nil {
				return m.total, err
			}
			continue
		}
		name := at.dirs[0]
		at.dirs = at.dirs[1:]
		fd, err := unix.Openat(int(at.handle.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if gone(err) {
			continue
		}
		if err != nil {
			return m.total, &os.PathError{Op: "open", Path: dir, Err: err}
		}
		if err := m.enter(os.NewFile(uintptr(fd), dir)); err != nil {
			return m.total, err
		}
	}
	return m.total, nil
}

// measure is a walk through a tree: the directories from its top to where it is.
type measure struct {
	way   []measured
	total Usage
	seen  map[uint64]bool // files that have several names
}

type measured struct {
	handle   *os.File // nil in the middle of a long way
	dev, ino uint64
	dirs     []string // what is still to be entered
}

// enter counts what is in a directory, which it takes over.
func (m *measure) enter(handle *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(handle.Fd()), &st); err != nil {
		handle.Close()
		return &os.PathError{Op: "stat", Path: handle.Name(), Err: err}
	}
	m.way = append(m.way, measured{handle: handle, dev: st.Dev, ino: st.Ino})
	if i := len(m.way) - 1 - keptOpen; i >= keptOpen {
		m.way[i].handle.Close()
		m.way[i].handle = nil
	}
	names, err := handle.Readdirnames(-1)
	if err != nil && !gone(err) {
		return err
	}
	at := &m.way[len(m.way)-1]
	for _, name := range names {
		if err := unix.Fstatat(int(handle.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); gone(err) {
			continue
		} else if err != nil {
			return &os.PathError{Op: "lstat", Path: handle.Name(), Err: err}
		}
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			at.dirs = append(at.dirs, name)
		case st.Nlink > 1 && m.seen[st.Ino]:
			continue
		case st.Nlink > 1:
			m.seen[st.Ino] = true
		}
		m.total.Bytes += st.Blocks * 512
		m.total.Files++
	}
	return nil
}

// leave goes back up, to the nearest directory that can be reached.
func (m *measure) leave() error {
	last := m.way[len(m.way)-1]
	m.way = m.way[:len(m.way)-1]
	defer last.handle.Close()
	if len(m.way) == 0 || m.way[len(m.way)-1].handle != nil {
		return nil
	}
	up := &m.way[len(m.way)-1]
	fd, err := unix.Openat(int(last.handle.Fd()), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil && !gone(err) {
		return &os.PathError{Op: "open", Path: last.handle.Name() + "/..", Err: err}
	}
	var st unix.Stat_t
	if err == nil {
		up.handle = os.NewFile(uintptr(fd), last.handle.Name())
		if err := unix.Fstat(fd, &st); err == nil && st.Dev == up.dev && st.Ino == up.ino {
			return nil
		}
	}
	for len(m.way) > keptOpen { // it was moved to elsewhere
		if up := m.way[len(m.way)-1]; up.handle != nil {
			up.handle.Close()
		}
		m.way = m.way[:len(m.way)-1]
	}
	return nil
}

func (m *measure) close() {
	for _, d := range m.way {
		if d.handle != nil {
			d.handle.Close()
		}
	}
}
