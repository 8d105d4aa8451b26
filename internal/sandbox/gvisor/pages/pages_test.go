package pages_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/sandbox/gvisor/pages"
)

// memory is a memory file, and what it should hold.
type memory struct {
	t    *testing.T
	file *os.File
	want []byte
	rnd  *rand.Rand
}

func newMemory(t *testing.T, count int) *memory {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{t: t, file: os.NewFile(uintptr(fd), "memory"), want: make([]byte, count*pages.Size), rnd: rand.New(rand.NewPCG(1, 2))}
	t.Cleanup(func() { m.file.Close() })
	if err := m.file.Truncate(int64(len(m.want))); err != nil {
		t.Fatal(err)
	}
	return m
}

// fill writes random bytes into pages.
func (m *memory) fill(first, count int) {
	m.t.Helper()
	b := m.want[first*pages.Size : (first+count)*pages.Size]
	for i := range b {
		b[i] = byte(m.rnd.Uint32())
	}
	m.write(first, count)
}

func (m *memory) clear(first, count int) {
	m.t.Helper()
	clear(m.want[first*pages.Size : (first+count)*pages.Size])
	m.write(first, count)
}

func (m *memory) write(first, count int) {
	m.t.Helper()
	if _, err := m.file.WriteAt(m.want[first*pages.Size:(first+count)*pages.Size], int64(first*pages.Size)); err != nil {
		m.t.Fatal(err)
	}
}

// chain is images of one memory, each based on the one before.
type chain struct {
	t    *testing.T
	root string
	last *pages.Image
	n    int
}

func newChain(t *testing.T) *chain {
	c := &chain{t: t, root: t.TempDir()}
	t.Cleanup(func() {
		if c.last != nil {
			c.last.Close()
		}
	})
	return c
}

// begin begins the next image.
func (c *chain) begin() (*pages.Saver, string) {
	c.t.Helper()
	c.n++
	dir := filepath.Join(c.root, fmt.Sprint(c.n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	s, err := pages.Begin(dir, c.last)
	if err != nil {
		c.t.Fatal(err)
	}
	return s, dir
}

// end saves all of m and makes the image the last of the chain.
func (c *chain) end(s *pages.Saver, dir string, m *memory) {
	c.t.Helper()
	runs, err := s.Save(pages.NewBuffers(), 0, m.file, 0, int64(len(m.want)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.finish(s, dir, m, runs)
}

func (c *chain) finish(s *pages.Saver, dir string, m *memory, runs []pages.Run) {
	c.t.Helper()
	im, err := s.Finish(runs)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.last != nil {
		c.last.Close()
	}
	c.last = im
	c.is(dir, m)
}

func (c *chain) save(m *memory) string {
	c.t.Helper()
	s, dir := c.begin()
	c.end(s, dir, m)
	return dir
}

// is checks that the image in dir is what m should hold.
func (c *chain) is(dir string, m *memory) {
	c.t.Helper()
	if !bytes.Equal(content(c.t, dir), m.want) {
		c.t.Fatalf("the image in %s is not the memory", dir)
	}
}

func content(t *testing.T, dir string) []byte {
	t.Helper()
	im, err := pages.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	var out []byte
	for at, part := int64(0), int64(3*pages.Size+100); ; at += part { // parts that begin within pages
		n, err := im.Parts(at, part, func(p pages.Part) error {
			b := make([]byte, p.Length)
			if p.File != nil {
				if _, err := p.File.ReadAt(b, p.At); err != nil {
					return err
				}
			}
			out = append(out, b...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n < part {
			return out
		}
	}
}

// stored is how many bytes of sources there are in directories, linked ones once.
func stored(t *testing.T, dirs ...string) int64 {
	t.Helper()
	seen := map[uint64]int64{}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "pages-*.img"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			var st unix.Stat_t
			if err := unix.Stat(name, &st); err != nil {
				t.Fatal(err)
			}
			seen[st.Ino] = st.Size
		}
	}
	var sum int64
	for _, n := range seen {
		sum += n
	}
	return sum
}

func TestAnImageTakesWhatHasChanged(t *testing.T) {
	m, c := newMemory(t, 1000), newChain(t)
	m.fill(0, 600)
	first := c.save(m)
	if got := stored(t, first); got != 600*pages.Size {
		t.Errorf("the first image takes %d pages, want 600", got/pages.Size)
	}
	m.fill(10, 1)
	m.fill(300, 7)
	m.clear(400, 20)
	m.fill(900, 2)
	second := c.save(m)
	if got := stored(t, first, second) - stored(t, first); got != 10*pages.Size {
		t.Errorf("the second image takes %d pages more, want 10", got/pages.Size)
	}
	third := c.save(m)
	if got := stored(t, first, second, third) - stored(t, first, second); got != 0 {
		t.Errorf("an image of the same memory takes %d bytes more", got)
	}
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(second); err != nil {
		t.Fatal(err)
	}
	c.is(third, m)
}

// TestADeletedImageIsNotShared deletes the last image, and with it the only name of what it wrote.
func TestADeletedImageIsNotShared(t *testing.T) {
	m, c := newMemory(t, 100), newChain(t)
	m.fill(0, 100)
	first := c.save(m)
	m.fill(20, 5)
	second := c.save(m)
	s, dir := c.begin() // which may be deleted while this is written
	if err := os.RemoveAll(second); err != nil {
		t.Fatal(err)
	}
	c.end(s, dir, m)
	if got := stored(t, first, dir) - stored(t, first); got != 5*pages.Size {
		t.Errorf("it takes %d pages more than the first, want 5", got/pages.Size)
	}
	for _, gone := range []string{first, dir} {
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
	}
	if got := stored(t, c.save(m)); got != 100*pages.Size {
		t.Errorf("it has %d pages of its own, want all 100", got/pages.Size)
	}
}

// TestAnImageInAnotherFileSystemIsWhole: nothing can be linked into it.
func TestAnImageInAnotherFileSystemIsWhole(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "pages-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(other); err != nil {
			t.Error(err)
		}
	})
	m, c := newMemory(t, 100), newChain(t)
	m.fill(0, 100)
	c.save(m)
	c.root = other
	dir := c.save(m)
	if got := stored(t, dir); got != 100*pages.Size {
		t.Errorf("it has %d pages of its own, want all 100", got/pages.Size)
	}
}

// TestAFullFileSystemIsAnError copies ahead and saves into one that has no room.
func TestAFullFileSystemIsAnError(t *testing.T) {
	m, c := newMemory(t, 100), newChain(t)
	m.fill(0, 100)
	c.save(m)
	m.fill(0, 10)
	s, dir := c.begin()
	name := filepath.Join(dir, "pages-*.img")
	names, err := filepath.Glob(name)
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var old unix.Rlimit // a file that may not grow is as good as a disk that is full
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 3 * pages.Size, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, perr := s.Precopy(context.Background(), 0, m.file)
	_, serr := s.Save(pages.NewBuffers(), 0, m.file, 0, int64(len(m.want)))
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(perr, unix.EFBIG) || !errors.Is(serr, unix.EFBIG) {
		t.Errorf("copying ahead: %v; saving: %v", perr, serr)
	}
	s.Discard()
	next, dir := c.begin()
	c.end(next, dir, m)
}

// TestADamagedBaseIsNotShared damages the last image, which stays open: the next one is right, and whole by itself but for what is still good.
func TestADamagedBaseIsNotShared(t *testing.T) {
	for name, damage := range map[string]func(name string) error{
		"cut short": func(name string) error { return os.Truncate(name, 30*pages.Size+5) },
		"empty":     func(name string) error { return os.Truncate(name, 0) },
		"written over": func(name string) error {
			return os.WriteFile(name, bytes.Repeat([]byte("x"), 50*pages.Size), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newMemory(t, 100), newChain(t)
			m.fill(0, 100)
			c.save(m)
			for i := 0; i < 100; i += 10 { // in pieces, of which some can be read
				m.fill(i, 1)
			}
			each(t, c.save(m), damage)
			m.fill(90, 3)
			for _, ahead := range []bool{true, false} {
				s, dir := c.begin()
				if ahead {
					if _, err := s.Precopy(context.Background(), 0, m.file); err != nil {
						t.Fatal(err)
					}
				}
				c.end(s, dir, m)
			}
		})
	}
}

func TestZerosTakeNothing(t *testing.T) {
	m, c := newMemory(t, 5000), newChain(t)
	m.clear(0, 5000) // pages that are there, and hold nothing
	if got := stored(t, c.save(m)); got != 0 {
		t.Errorf("an image of zeros takes %d bytes", got)
	}
}

// TestImagesOfAChangingMemory compares each image of a long chain with a model, and the space that the last ones take.
func TestImagesOfAChangingMemory(t *testing.T) {
	const count, images = 700, 60
	m, c := newMemory(t, count), newChain(t)
	m.fill(0, count)
	var dirs []string
	for range images {
		for range 20 {
			first := m.rnd.IntN(count)
			n := 1 + m.rnd.IntN(min(9, count-first))
			if m.rnd.IntN(4) == 0 {
				m.clear(first, n)
			} else {
				m.fill(first, n)
			}
		}
		s, dir := c.begin()
		if m.rnd.IntN(2) == 0 {
			if _, err := s.Precopy(context.Background(), 0, m.file); err != nil {
				t.Fatal(err)
			}
			m.fill(m.rnd.IntN(count), 1) // while the copying goes on
		}
		c.end(s, dir, m)
		dirs = append(dirs, dir)
	}
	last := dirs[len(dirs)-1]
	if used := stored(t, last); used > 4*count*pages.Size {
		t.Errorf("the last image holds on to %d pages, of a memory of %d", used/pages.Size, count)
	}
	if entries, err := os.ReadDir(last); err != nil || len(entries) > 67 {
		t.Errorf("the last image has %d files (%v)", len(entries), err)
	}
}

func TestPrecopyLeavesTheChangesToSave(t *testing.T) {
	m, c := newMemory(t, 2000), newChain(t)
	m.fill(0, 1500)
	s, dir := c.begin()
	written, err := s.Precopy(context.Background(), 0, m.file)
	if err != nil || written != 1500*pages.Size {
		t.Fatalf("%d pages copied ahead (%v), want 1500", written/pages.Size, err)
	}
	m.fill(3, 5)
	m.clear(100, 5)
	m.fill(1600, 2)
	c.end(s, dir, m)
	if got := stored(t, dir); got != 1502*pages.Size {
		t.Errorf("the image takes %d pages, want 1502: what was copied too early is written over", got/pages.Size)
	}
}

// TestPrecopyOfMemoryThatIsYetToCome copies ahead of a memory that is being restored: of some pages there are holes, and of some zeros.
func TestPrecopyOfMemoryThatIsYetToCome(t *testing.T) {
	m, c := newMemory(t, 300), newChain(t)
	m.fill(0, 300)
	first := c.save(m)
	all := bytes.Clone(m.want)
	if err := unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 100*pages.Size); err != nil {
		t.Fatal(err)
	}
	m.clear(150, 50)
	s, dir := c.begin()
	if _, err := s.Precopy(context.Background(), 0, m.file); err != nil {
		t.Fatal(err)
	}
	copy(m.want, all)
	m.write(0, 300)
	c.end(s, dir, m)
	if got := stored(t, first, dir) - stored(t, first); got != 0 {
		t.Errorf("%d pages that came later were written again", got/pages.Size)
	}
}

// TestSeveralSaveAtOnce saves parts of the memory side by side, some of it copied ahead.
func TestSeveralSaveAtOnce(t *testing.T) {
	const part, parts = 150, 8 // pages
	m, c := newMemory(t, part*parts), newChain(t)
	m.fill(0, part*parts)
	c.save(m)
	m.fill(0, part*parts/2)
	s, dir := c.begin()
	if _, err := s.Precopy(context.Background(), 0, m.file); err != nil {
		t.Fatal(err)
	}
	m.fill(part, part*parts/2)
	var all [parts][]pages.Run
	var work errgroup.Group
	for i := range parts {
		work.Go(func() (err error) {
			all[i], err = s.Save(pages.NewBuffers(), 0, m.file, int64(i*part*pages.Size), part*pages.Size)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	c.finish(s, dir, m, slices.Concat(all[:]...))
}

func TestPrecopyStops(t *testing.T) {
	m, c := newMemory(t, 2000), newChain(t)
	m.fill(0, 2000)
	s, dir := c.begin()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Precopy(ctx, 0, m.file); err == nil {
		t.Error("it goes on without its context")
	}
	c.end(s, dir, m)
}

func TestImagesWithoutAMapAreRead(t *testing.T) {
	m, c := newMemory(t, 50), newChain(t)
	m.fill(0, 50)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pages.img"), m.want, 0o600); err != nil {
		t.Fatal(err)
	}
	c.is(dir, m)
	im, err := pages.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.last = im
	next := c.save(m)
	if got := stored(t, next); got != 50*pages.Size {
		t.Errorf("the next image has %d pages of its own, want all 50", got/pages.Size)
	}
}

func TestDamagedImagesAreRefused(t *testing.T) {
	m, c := newMemory(t, 50), newChain(t)
	m.fill(0, 50)
	for name, damage := range map[string]func(t *testing.T, dir string){
		"a changed map": func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, pages.MapName))
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(filepath.Join(dir, pages.MapName), b, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a short source": func(t *testing.T, dir string) {
			each(t, dir, func(name string) error { return os.Truncate(name, pages.Size) })
		},
		"no source": func(t *testing.T, dir string) { each(t, dir, os.Remove) },
		"a link for a source": func(t *testing.T, dir string) {
			each(t, dir, func(name string) error {
				if err := os.Rename(name, name+".moved"); err != nil {
					return err
				}
				return os.Symlink(name+".moved", name)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := c.begin()
			c.end(s, dir, m)
			// Of its own, as after the last of a lineage.
			damage(t, dir)
			if im, err := pages.Open(dir); err == nil {
				im.Close()
				t.Error("it opens")
			}
		})
		c.last.Close()
		c.last = nil
	}
}

func each(t *testing.T, dir string, f func(name string) error) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "pages-*.img"))
	if err != nil || len(names) == 0 {
		t.Fatal("no sources", err)
	}
	for _, name := range names {
		if err := f(name); err != nil {
			t.Fatal(err)
		}
	}
}
