package checkpoint_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// next returns a checkpoint that shares the pages of x and has a state of its own.
func (x taken) next(t *testing.T) taken {
	t.Helper()
	y := x
	y.m.ID, y.m.Memory = id.NewCheckpoint(), nil
	d, err := x.store.Begin(y.m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(x.memoryDir(), "pages"), filepath.Join(d.MemoryDir(), "pages")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.MemoryDir(), "state"), []byte(y.m.ID))
	if y.hash, err = d.Commit(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	y.m = d.Manifest
	return y
}

// old sets the times of the pages back, so that it counts what looks the same.
func (x taken) old(t *testing.T) {
	t.Helper()
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(x.memoryDir(), "pages"), long, long); err != nil {
		t.Fatal(err)
	}
}

// reads returns how many bytes this process has asked to read, while f runs. See proc_pid_io(5).
func reads(t *testing.T, f func()) int64 {
	t.Helper()
	count := func() (n int64) {
		b, err := os.ReadFile("/proc/self/io")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			if v, ok := bytes.CutPrefix(line, []byte("rchar: ")); ok {
				for _, c := range bytes.TrimSpace(v) {
					n = 10*n + int64(c-'0')
				}
			}
		}
		return n
	}
	before := count()
	f()
	return count() - before
}

const pagesOfTaken = 3 << 20

// TestSharedFilesAreReadOnce makes, stores, opens and deletes checkpoints that share a large file.
func TestSharedFilesAreReadOnce(t *testing.T) {
	x := takeWarm(t)
	x.old(t)
	first := x.next(t) // reads it, since its time has changed
	seal(t, first)
	open := func(c taken) {
		o, err := c.store.Open(t.Context(), c.m.ID, c.hash)
		if err != nil {
			t.Fatal(err)
		}
		o.Close()
	}
	for reads(t, func() { open(first) }) > pagesOfTaken/2 { // one that was touched just now is read again
	}
	var last taken
	if n := reads(t, func() {
		for range 5 {
			last = first.next(t)
			seal(t, last)
			open(last)
			gone := first.next(t)
			if err := gone.store.Delete(t.Context(), gone.m.ID); err != nil {
				t.Fatal(err)
			}
		}
	}); n > pagesOfTaken/2 {
		t.Errorf("%d bytes were read for files of %d", n, pagesOfTaken)
	}
	o, err := last.store.Open(t.Context(), last.m.ID, last.hash)
	last.whole(t, o, err)
}

// TestSharedFilesAreFetchedOnce sheds all images, and fetches them.
func TestSharedFilesAreFetchedOnce(t *testing.T) {
	x := take(t)
	y := x.next(t)
	seal(t, y)
	shed(t, x.store, 0)
	for _, c := range []taken{x, y} {
		if !isGone(t, c.memoryDir()) {
			t.Fatal("it is still there")
		}
		o, err := c.store.Open(t.Context(), c.m.ID, c.hash)
		c.whole(t, o, err)
		o.Close()
	}
	info, err := os.Stat(filepath.Join(y.memoryDir(), "pages"))
	if err != nil {
		t.Fatal(err)
	}
	if n := info.Sys().(*syscall.Stat_t).Nlink; n != 2 {
		t.Errorf("the pages of two images that were fetched have %d links", n)
	}
}

// TestDamageOfASharedFileHeals damages a file that two checkpoints share: each gets it back from the store.
func TestDamageOfASharedFileHeals(t *testing.T) {
	x := take(t)
	y := x.next(t)
	seal(t, y)
	damageByte(t, filepath.Join(y.memoryDir(), "pages"))
	for _, c := range []taken{x, y, x} {
		o, err := c.store.Open(t.Context(), c.m.ID, c.hash)
		c.whole(t, o, err)
		o.Close()
	}
}

func damageByte(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{b[100] ^ 1}, 100); err != nil {
		t.Fatal(err)
	}
}

// TestFilesWhoseTimesWereSetBackAreRead damages a file and hides that.
func TestFilesWhoseTimesWereSetBackAreRead(t *testing.T) {
	x := takeWarm(t)
	x.old(t)
	o, err := x.store.Open(t.Context(), x.m.ID, x.hash)
	x.whole(t, o, err)
	o.Close()
	name := filepath.Join(x.memoryDir(), "pages")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	damageByte(t, name)
	if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.store.Open(t.Context(), x.m.ID, x.hash); errdefs.CodeOf(err) != "checkpoint_corrupt" {
		t.Errorf("it opens with %v", err)
	}
}

// TestStoredOnceWhatIsShared looks at what the store has on disk.
func TestStoredOnceWhatIsShared(t *testing.T) {
	x := take(t)
	size := func() (n int64) {
		err := filepath.WalkDir(filepath.Join(x.dirs.Root, "images"), func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			n += info.Size()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	one := size()
	for range 3 {
		seal(t, x.next(t))
	}
	if n := size() - one; n > 64<<10 {
		t.Errorf("three images that share all but their state take %d bytes more", n)
	}
	// Another process, which knows of no image, stores it against the chunks.
	fresh := x
	fresh.store = checkpoint.NewStore(x.dirs, images(t, x.dirs))
	y := fresh.next(t)
	seal(t, y)
	if n := size() - one; n > 128<<10 {
		t.Errorf("one more by another process: %d bytes more", n)
	}
}
