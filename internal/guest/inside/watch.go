package inside

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// maxWatched bounds the directories of one watch; a larger tree is reported as an overflow once.
const maxWatched = 8192

const watchMask = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF

// watch reports changes below a directory, through inotify(7).
type watch struct {
	g    *Guest
	id   uint64
	file *os.File
	fd   int // of file, for adding directories; valid until close

	mu     sync.Mutex // guards all below
	paths  map[int]string
	closed bool
}

// fileWatch begins a watch under the number of its request; repeated, it changes nothing.
func (g *Guest) fileWatch(id uint64, path string) error {
	if err := g.resolve(&path); err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	g.mu.Lock()
	_, there := g.watches[id]
	g.mu.Unlock()
	if there {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fail("exhausted", "watch_limit", "no more watches: %v", err)
	}
	w := &watch{g: g, id: id, fd: fd, file: os.NewFile(uintptr(fd), "inotify"), paths: map[int]string{}}
	if err := w.add(path, false); err != nil {
		w.close()
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, there := g.watches[id]; there {
		w.close()
		return nil
	}
	g.watches[id] = w
	go w.run()
	return nil
}

func (g *Guest) unwatch(id uint64) {
	g.mu.Lock()
	w := g.watches[id]
	delete(g.watches, id)
	g.mu.Unlock()
	if w != nil {
		w.close()
	}
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		w.file.Close()
	}
}

// add watches a tree. With report, what is found in it is reported as created: it may have come before the watch did.
func (w *watch) add(root string, report bool) error {
	first := true
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		isRoot := first
		first = false
		if err != nil {
			if isRoot {
				return err
			}
			return nil // gone since, or not ours to see
		}
		if report && !isRoot {
			w.report(path, "create")
		}
		if !d.IsDir() && !isRoot {
			return nil
		}
		return w.addOne(path)
	})
}

func (w *watch) addOne(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fs.SkipAll
	}
	if len(w.paths) >= maxWatched {
		w.report(path, "overflow")
		return fs.SkipAll
	}
	n, err := unix.InotifyAddWatch(w.fd, path, watchMask)
	if err != nil {
		return fs.SkipDir
	}
	w.paths[n] = path
	return nil
}

func (w *watch) run() {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			ev := (*unix.InotifyEvent)(unsafe.Pointer(&rest[0])) // the kernel's own layout, aligned by it
			end := unix.SizeofInotifyEvent + int(ev.Len)
			if end > len(rest) {
				break
			}
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:end]), "\x00")
			w.event(int(ev.Wd), ev.Mask, name)
			rest = rest[end:]
		}
	}
}

func (w *watch) event(wd int, mask uint32, name string) {
	w.mu.Lock()
	dir, known := w.paths[wd]
	if mask&unix.IN_IGNORED != 0 {
		delete(w.paths, wd)
	}
	w.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.report("", "overflow")
		return
	}
	if !known || mask&unix.IN_IGNORED != 0 {
		return
	}
	path := filepath.Join(dir, name)
	switch {
	case mask&unix.IN_CREATE != 0, mask&unix.IN_MOVED_TO != 0:
		w.report(path, "create")
		if mask&unix.IN_ISDIR != 0 {
			if err := w.add(path, true); err != nil {
				w.g.log.Debug("watching a new directory", "path", path, "err", err)
			}
		}
	case mask&unix.IN_MOVED_FROM != 0:
		w.report(path, "rename")
	case mask&unix.IN_DELETE != 0, mask&unix.IN_DELETE_SELF != 0:
		w.report(path, "remove")
	case mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_ATTRIB) != 0:
		w.report(path, "write")
	}
}

func (w *watch) report(path, op string) {
	data, err := json.Marshal(wire.Event{Watch: w.id, Path: path, Op: op})
	if err == nil {
		w.g.out.send(wire.AppendFrame(nil, wire.TypeEvent, data))
	}
}
