package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/id"
)

// Memory images are large and share files, by hard links: of what is in a file this process knows since it read it last, whatever its name.

// contents is what files are known to hold.
type contents struct {
	mu     sync.Mutex // guards what follows
	known  map[inode]content
	places map[string]string // by hash: where a file with that content was seen last
	pruned int               // how many were known when that was last looked through
}

func newContents() *contents {
	return &contents{known: map[inode]content{}, places: map[string]string{}}
}

// inode is a file, whatever it is called.
type inode struct{ dev, ino uint64 }

// content is what a file holds, as long as it looks as it did.
type content struct {
	hash         string
	size         int64
	mtime, ctime int64
	links        uint64
	touched      int64 // when it may have been written last: what a link changes is left out
}

// fresh is how long a file may look as it did although it has been written: the kernel's clock for files is that coarse.
const fresh = time.Second / 50

// look says how a file looks now.
func look(path string) (inode, content, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return inode{}, content{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	at, now := fromStat(st)
	return at, now, nil
}

func fromStat(st unix.Stat_t) (inode, content) {
	return inode{st.Dev, st.Ino}, content{size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), links: st.Nlink}
}

// holds says whether a file that looked as c does, and looks as now does, has the same content. A link that was made or removed changes the time
// of the inode and nothing else that shows; who writes a file and sets its time back changes that without a link.
func (c content) holds(now content) bool {
	if c.hash == "" || c.size != now.size || c.mtime != now.mtime || c.ctime != now.ctime && c.links == now.links {
		return false
	}
	return time.Now().UnixNano()-c.touched >= int64(fresh)
}

// of returns the hash and size of a file, and reads it only if it is not known.
func (k *contents) of(ctx context.Context, path string) (hash string, size int64, err error) {
	at, now, err := look(path)
	if err != nil {
		return "", 0, err
	}
	if hash, ok := k.seen(at, now, path); ok {
		return hash, now.size, nil
	}
	if now.hash, size, err = hashFile(ctx, path); err != nil {
		return "", size, err
	}
	k.note(at, now, path)
	return now.hash, size, nil
}

// seen returns what a file holds that looks as now does, if that is known.
func (k *contents) seen(at inode, now content, path string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.known[at]
	if !was.holds(now) {
		return "", false
	}
	now.hash, now.touched = was.hash, was.touched
	k.known[at], k.places[was.hash] = now, path
	return was.hash, true
}

func (k *contents) note(at inode, now content, path string) {
	now.touched = max(now.mtime, now.ctime)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[at], k.places[now.hash] = now, path
}

// has notes that a file in place holds what has that hash: whoever wrote it has seen to it.
func (k *contents) has(path, hash string) error {
	at, now, err := look(path)
	if err == nil {
		now.hash = hash
		k.note(at, now, path)
	}
	return err
}

// settle is to be called soon after links to the files of a directory were made or removed: those that are known stay so.
func (k *contents) settle(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // then they are read
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if at, now, err := look(path); err == nil {
			k.seen(at, now, path)
		}
	}
}

// forget has the files of a directory read again, but for those that skip has.
func (k *contents) forget(dir string, skip map[inode]struct{}) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // there is nothing to read
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range entries {
		if at, _, err := look(filepath.Join(dir, e.Name())); err == nil {
			if _, ok := skip[at]; !ok {
				delete(k.known, at)
			}
		}
	}
}

// elsewhere returns where there is a file with the content that a hash is of; "" if nowhere.
func (k *contents) elsewhere(ctx context.Context, hash string) string {
	k.mu.Lock()
	path := k.places[hash]
	k.mu.Unlock()
	if path == "" {
		return ""
	}
	if got, _, err := k.of(ctx, path); err != nil || got != hash {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.places[hash] == path {
			delete(k.places, hash)
		}
		return ""
	}
	return path
}

// across runs f, which removes a directory: what is known of files in it that have other links stays known.
func (k *contents) across(dir string, f func() error) error {
	entries, _ := os.ReadDir(dir) // if that fails they are read again
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if at, now, err := look(path); err != nil || now.links < 2 {
			continue
		} else if _, ok := k.seen(at, now, path); !ok {
			continue
		}
		if fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			defer k.relook(fd)
		}
	}
	err := f()
	k.prune()
	return err
}

// relook notes how a file that is known looks now, and closes it.
func (k *contents) relook(fd int) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return
	}
	at, now := fromStat(st)
	k.mu.Lock()
	defer k.mu.Unlock()
	if was := k.known[at]; was.holds(now) {
		now.hash, now.touched = was.hash, was.touched
		k.known[at] = now
	}
}

// pruneAfter is how many files may be known before those are looked for that have gone.
const pruneAfter = 1000

// prune drops what is known of files that have gone, if it has become much.
func (k *contents) prune() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) < max(pruneAfter, 2*k.pruned) {
		return
	}
	there := map[inode]struct{}{}
	for hash, path := range k.places {
		if at, _, err := look(path); err == nil && k.known[at].hash == hash {
			there[at] = struct{}{}
		} else {
			delete(k.places, hash)
		}
	}
	for at := range k.known {
		if _, ok := there[at]; !ok {
			delete(k.known, at)
		}
	}
	k.pruned = len(k.known)
}

func (s *Store) forget(c id.Checkpoint) { s.contents.forget(s.memoryDir(c), nil) }
