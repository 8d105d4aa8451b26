package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/snapshot/disk"
	"perdure.dev/perdure/internal/snapshot/snapshottest"
)

const page = 4096

// rig is a store on a directory, which can be opened again.
type rig struct {
	*snapshot.Store
	dir    string
	keys   snapshot.Keys
	bucket *snapshottest.Faults
}

func newRig(t testing.TB, dir string) *rig {
	t.Helper()
	b, err := disk.Open(filepath.Join(dir, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := disk.OpenKeys(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{dir: dir, keys: k, bucket: &snapshottest.Faults{Bucket: b}}
	if r.Store, err = snapshot.New(r.bucket, k, 2); err != nil {
		t.Fatal(err)
	}
	return r
}

// save stores one snapshot with one stream.
func (r *rig) save(t testing.TB, l snapshot.Lineage, name string, data []byte) snapshot.Added {
	t.Helper()
	added, err := r.trySave(t, l, name, data)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

func (r *rig) trySave(t testing.TB, l snapshot.Lineage, name string, data []byte) (snapshot.Added, error) {
	t.Helper()
	d, err := r.Begin(t.Context(), l)
	if err != nil {
		return snapshot.Added{}, err
	}
	defer d.Discard()
	if _, err := d.Add(t.Context(), "memory", bytes.NewReader(data)); err != nil {
		return snapshot.Added{}, err
	}
	_, added, err := d.Commit(t.Context(), name, map[string]string{"of": name})
	return added, err
}

// memory is a file in RAM.
type memory struct {
	mu sync.Mutex
	b  []byte
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(m.b[off:], p), nil
}

func (r *rig) load(t testing.TB, l snapshot.Lineage, name string) ([]byte, error) {
	t.Helper()
	s, err := r.Open(t.Context(), l, name)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	m := &memory{b: make([]byte, s.Size())}
	_, err = s.Extract(t.Context(), "memory", m)
	return m.b, err
}

func (r *rig) want(t testing.TB, l snapshot.Lineage, name string, data []byte) {
	t.Helper()
	if got, err := r.load(t, l, name); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%s: %d bytes, want %d; %v", name, len(got), len(data), err)
	}
}

// noise is data that does not compress and is the same for the same seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(b)
	return b
}

func TestRoundTrip(t *testing.T) {
	r := newRig(t, t.TempDir())
	sparse := make([]byte, 64*page)
	for i := 0; i < len(sparse); i += 3 * page {
		sparse[i] = 1
	}
	for name, data := range map[string][]byte{
		"empty": {}, "byte": {7}, "zero-byte": {0}, "page": noise(1, page), "odd": noise(2, 10*page+17),
		"zeros": make([]byte, 1<<20), "sparse": sparse, "text": bytes.Repeat([]byte("all work and no play "), 100_000),
		"large": noise(3, 20<<20), "zeros-at-the-end": append(noise(4, 3*page), make([]byte, 5*page+9)...),
		"the-same-again-and-again": bytes.Repeat(noise(5, page), 3000),
	} {
		t.Run(name, func(t *testing.T) {
			r.save(t, "lin", name, data)
			r.want(t, "lin", name, data)
			newRig(t, r.dir).want(t, "lin", name, data)
		})
	}
	report, err := r.Verify(t.Context(), "lin")
	if err != nil || len(report.Damaged)+len(report.Lost) > 0 || report.Chunks == 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestZerosCostNothing(t *testing.T) {
	r := newRig(t, t.TempDir())
	if added := r.save(t, "lin", "a", make([]byte, 256<<20)); added.Stored != 0 {
		t.Errorf("256 MiB of zeros took %+v", added)
	}
	sparse := make([]byte, 256<<20)
	copy(sparse[100<<20:], noise(1, 64<<10))
	if added := r.save(t, "lin", "b", sparse); added.Stored > 70<<10 {
		t.Errorf("64 KiB among 256 MiB of zeros took %+v", added)
	}
}

func TestIdenticalContentIsStoredOnce(t *testing.T) {
	r := newRig(t, t.TempDir())
	data := noise(1, 16<<20)
	r.save(t, "lin", "a", data)
	if again := r.save(t, "lin", "b", data); again.Stored != 0 {
		t.Errorf("the same again took %+v", again)
	}
	// A page more in front moves everything.
	if moved := r.save(t, "lin", "c", append(noise(2, page), data...)); moved.Content > 1<<20 {
		t.Errorf("one page in front took %+v", moved)
	}
	changed := slices.Clone(data)
	copy(changed[7<<20:], noise(3, 1<<20))
	if some := r.save(t, "lin", "d", changed); some.Stored > 1<<20+400<<10 {
		t.Errorf("1 MiB of 16 changed, and it took %+v", some)
	}
	// Another session's: it must not tell whether anybody else has the same.
	if other := r.save(t, "other", "a", data); other.Content < int64(len(data)) {
		t.Errorf("another lineage found %+v", other)
	}
	for name, want := range map[string][]byte{"b": data, "d": changed} {
		r.want(t, "lin", name, want)
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.save(t, "lin", "a", noise(1, page))
	if _, err := r.trySave(t, "lin", "a", noise(2, page)); errdefs.CodeOf(err) != snapshot.CodeExists {
		t.Errorf("%v", err)
	}
	r.want(t, "lin", "a", noise(1, page))
	for _, bad := range []string{"", "..", "a/b", "A", ".x", strings.Repeat("x", 200)} {
		if _, err := r.trySave(t, "lin", bad, nil); errdefs.CodeOf(err) != snapshot.CodeBadName {
			t.Errorf("snapshot %q: %v", bad, err)
		}
		if _, err := r.trySave(t, snapshot.Lineage(bad), "a", nil); errdefs.CodeOf(err) != snapshot.CodeBadName {
			t.Errorf("lineage %q: %v", bad, err)
		}
	}
	if _, err := r.load(t, "lin", "none"); errdefs.CodeOf(err) != snapshot.CodeNotFound {
		t.Errorf("%v", err)
	}
	if _, err := r.load(t, "nobody", "a"); errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
		t.Errorf("%v", err)
	}
}

func TestNothingOfTheContentIsReadable(t *testing.T) {
	r := newRig(t, t.TempDir())
	secret := []byte("correct horse battery staple, and the name of a session")
	r.save(t, "lin", "a", bytes.Repeat(secret, 100))
	err := filepath.Walk(filepath.Join(r.dir, "snapshots"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, secret[:16]) || bytes.Contains(b, []byte("memory")) {
			t.Errorf("%s has it in the clear", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAFlippedByteIsNeverData flips bytes all over the store: a snapshot is what was stored, or an error.
func TestAFlippedByteIsNeverData(t *testing.T) {
	r := newRig(t, t.TempDir())
	data := append(noise(1, 40*page), bytes.Repeat([]byte("text "), 10*page)...)
	r.save(t, "lin", "a", data)
	var files []string
	err := filepath.Walk(filepath.Join(r.dir, "snapshots"), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(good); at += max(1, min(len(good)/200, len(good)-at-100)) { // each of the last hundred
			bad := slices.Clone(good)
			bad[at] ^= 1 << (at % 8)
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			again := newRig(t, r.dir)
			got, err := again.load(t, "lin", "a")
			code := errdefs.CodeOf(err)
			if code != snapshot.CodeCorrupt && code != snapshot.CodeChunkMissing {
				t.Fatalf("byte %d of %s: %v, equal %v", at, file, err, bytes.Equal(got, data))
			}
			if report, err := again.Verify(t.Context(), "lin"); err != nil || len(report.Lost) != 1 {
				t.Fatalf("byte %d of %s: Verify %+v, %v", at, file, report, err)
			}
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newRig(t, r.dir).want(t, "lin", "a", data)
}

func TestAManifestInAnothersPlaceIsRefused(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.save(t, "lin", "a", noise(1, page))
	r.save(t, "lin", "b", noise(2, page))
	dir := filepath.Join(r.dir, "snapshots/lin/manifests")
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.load(t, "lin", "b"); errdefs.CodeOf(err) != snapshot.CodeCorrupt {
		t.Errorf("%v", err)
	}
}

func TestRepairKeepsWhatIsGoodAndHealsTheRest(t *testing.T) {
	r := newRig(t, t.TempDir())
	kept, hit := noise(1, 50*page), noise(2, 200*page)
	r.save(t, "lin", "kept", kept)
	r.save(t, "lin", "hit", hit)
	var largest string
	var size int64
	err := filepath.Walk(filepath.Join(r.dir, "snapshots/lin/packs"), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(largest, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damaged!"), size/2); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, r.dir)
	report, err := r.Repair(t.Context(), "lin")
	if err != nil || len(report.Damaged) != 1 || report.Damaged[0].Chunks != 1 || len(report.Lost) != 1 || report.Lost[0].Snapshot != "hit" {
		t.Fatalf("%+v, %v", report, err)
	}
	r.want(t, "lin", "kept", kept)
	if _, err := r.load(t, "lin", "hit"); errdefs.CodeOf(err) != snapshot.CodeChunkMissing {
		t.Fatalf("%v", err)
	}
	// A collection in between must keep the parts of what may heal.
	if _, err := r.Collect(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	if added := r.save(t, "lin", "again", hit); added.Chunks != 1 {
		t.Errorf("healing took %+v", added)
	}
	r.want(t, "lin", "hit", hit)
	if report, err := r.Verify(t.Context(), "lin"); err != nil || len(report.Damaged)+len(report.Lost) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestCollect(t *testing.T) {
	r := newRig(t, t.TempDir())
	base := noise(1, 12<<20)
	for i := range 12 {
		data := slices.Clone(base)
		copy(data[i<<20:], noise(uint64(100+i), 256<<10))
		r.save(t, "lin", fmt.Sprint("s", i), data)
	}
	before, err := r.Usage(t.Context(), "lin")
	if err != nil || before.Snapshots != 12 {
		t.Fatalf("%+v, %v", before, err)
	}
	if done, err := r.Collect(t.Context(), "lin"); err != nil || done.Freed < 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for i := range 11 {
		if err := r.Delete(t.Context(), "lin", fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
	}
	done, err := r.Collect(t.Context(), "lin")
	if err != nil {
		t.Fatal(err)
	}
	after, err := r.Usage(t.Context(), "lin")
	if err != nil || after.Stored > 13<<20 || after.Snapshots != 1 {
		t.Errorf("%+v frees %d, and leaves %+v of %+v; %v", done, done.Freed, after, before, err)
	}
	want := slices.Clone(base)
	copy(want[11<<20:], noise(111, 256<<10))
	r.want(t, "lin", "s11", want)
	newRig(t, r.dir).want(t, "lin", "s11", want)
	if err := r.Delete(t.Context(), "lin", "s11"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Collect(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	if left, err := r.Usage(t.Context(), "lin"); err != nil || left != (snapshot.Usage{}) {
		t.Errorf("%+v is left, %v", left, err)
	}
}

// TestDestroyLeavesNothing destroys a lineage just before an object of it is stored: while Collect puts its packs together, and while a draft is written.
func TestDestroyLeavesNothing(t *testing.T) {
	for name, work := range map[string]func(r *rig) error{
		"collect": func(r *rig) error { _, err := r.Collect(t.Context(), "lin"); return err },
		"draft":   func(r *rig) error { _, err := r.trySave(t, "lin", "late", noise(99, 1<<20)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, t.TempDir())
			for i := range 9 { // small packs, which are put together
				r.save(t, "lin", fmt.Sprint("s", i), noise(uint64(i), 100<<10))
			}
			var once sync.Once
			r.bucket.Before = func(_ int, op, _ string) error {
				if op == "put" {
					once.Do(func() {
						if err := r.Destroy(t.Context(), "lin"); err != nil {
							t.Error(err)
						}
					})
				}
				return nil
			}
			if err := work(r); errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
				t.Errorf("it ends with %v", err)
			}
			for o, err := range r.bucket.List(t.Context(), "lin/") {
				t.Errorf("%s is left, %v", o.Name, err)
			}
		})
	}
}

func TestCollectKeepsWhatIsReadAndWritten(t *testing.T) {
	r := newRig(t, t.TempDir())
	data := noise(1, 3<<20)
	r.save(t, "lin", "a", data)
	reading, err := r.Open(t.Context(), "lin", "a")
	if err != nil {
		t.Fatal(err)
	}
	collect := func() {
		t.Helper()
		if _, err := r.Collect(t.Context(), "lin"); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Delete(t.Context(), "lin", "a"); err != nil {
		t.Fatal(err)
	}
	collect()
	m := &memory{b: make([]byte, len(data))}
	if _, err := reading.Extract(t.Context(), "memory", m); err != nil || !bytes.Equal(m.b, data) {
		t.Fatalf("it was being read: %v", err)
	}
	// A draft finds the chunks of what is deleted and not read any more.
	d, err := r.Begin(t.Context(), "lin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(t.Context(), "memory", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	reading.Close()
	collect()
	if _, added, err := d.Commit(t.Context(), "b", nil); err != nil || added.Chunks != 0 {
		t.Fatalf("%+v, %v", added, err)
	}
	collect()
	r.want(t, "lin", "b", data)
}

func TestAdopt(t *testing.T) {
	r := newRig(t, t.TempDir())
	data := noise(1, 1<<20)
	r.save(t, "lin", "a", data)
	a, err := r.Open(t.Context(), "lin", "a")
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Begin(t.Context(), "lin")
	if err != nil {
		t.Fatal(err)
	}
	d.Adopt(a)
	// The chunks are nobody's but the reader's for a moment.
	if err := r.Delete(t.Context(), "lin", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Collect(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	if _, added, err := d.Commit(t.Context(), "b", nil); err != nil || added.Stored != 0 {
		t.Fatalf("%+v, %v", added, err)
	}
	a.Close()
	if _, err := r.Collect(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	r.want(t, "lin", "b", data)
}

func TestDestroy(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.save(t, "lin", "a", noise(1, 1<<20))
	r.save(t, "other", "a", noise(1, 1<<20))
	d, err := r.Begin(t.Context(), "lin")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Destroy(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Commit(t.Context(), "b", nil); errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
		t.Errorf("a draft of what was deleted: %v", err)
	}
	if _, err := r.load(t, "lin", "a"); errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(filepath.Join(r.dir, "snapshots")); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
	r.want(t, "other", "a", noise(1, 1<<20))
	// A crash between the key and the objects.
	r.save(t, "lin", "a", noise(2, page))
	if err := r.keys.Destroy(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	r.save(t, "unknown", "a", noise(3, page))
	if err := r.Sweep(t.Context(), func(l snapshot.Lineage) (bool, error) { return l != "unknown", nil }); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(r.dir, "snapshots")); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
	r.want(t, "other", "a", noise(1, 1<<20))
}

// TestAllAtOnce writes, reads, deletes, collects and verifies one lineage at the same time.
func TestAllAtOnce(t *testing.T) {
	r := newRig(t, t.TempDir())
	base := noise(1, 2<<20)
	content := func(w, i int) []byte {
		b := slices.Clone(base)
		copy(b[(i%4)<<19:], noise(uint64(w*1000+i), 128<<10))
		return b
	}
	stop := make(chan struct{})
	var workers, cleaners sync.WaitGroup
	errs := make([]error, 6)
	for w := range 4 {
		workers.Go(func() {
			for i := range 12 {
				name := fmt.Sprintf("w%d-%d", w, i)
				_, err := r.trySave(t, "lin", name, content(w, i))
				if err == nil {
					var got []byte
					if got, err = r.load(t, "lin", name); err == nil && !bytes.Equal(got, content(w, i)) {
						err = fmt.Errorf("%s is not what was stored", name)
					}
				}
				if i%3 > 0 {
					err = errors.Join(err, r.Delete(t.Context(), "lin", name))
				}
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	clean := func(at int, do func() error) {
		cleaners.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					errs[at] = errors.Join(errs[at], do())
				}
			}
		})
	}
	ignoreNew := func(err error) error {
		if errdefs.CodeOf(err) == snapshot.CodeKeyMissing { // nobody has begun yet
			return nil
		}
		return err
	}
	clean(4, func() error { _, err := r.Collect(t.Context(), "lin"); return ignoreNew(err) })
	clean(5, func() error {
		report, err := r.Verify(t.Context(), "lin")
		if len(report.Lost) > 0 {
			err = fmt.Errorf("lost %+v", report.Lost)
		}
		return ignoreNew(err)
	})
	workers.Wait()
	close(stop)
	cleaners.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Collect(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	again := newRig(t, r.dir)
	for w := range 4 {
		for i := 0; i < 12; i += 3 {
			again.want(t, "lin", fmt.Sprintf("w%d-%d", w, i), content(w, i))
		}
	}
}

// TestAFullDisk fills a small file system: the snapshot that does not fit fails, the ones before stay, and there is room again after it is given up.
func TestAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=0700"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, dir)
	data := noise(1, 6<<20)
	r.save(t, "lin", "a", data)
	if _, err := r.trySave(t, "lin", "b", noise(2, 40<<20)); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%v", err)
	}
	r.want(t, "lin", "a", data)
	if _, err := r.Collect(t.Context(), "lin"); err != nil {
		t.Fatal(err)
	}
	r.save(t, "lin", "b", noise(3, 6<<20))
	newRig(t, dir).want(t, "lin", "a", data)
}

func TestAStreamThatBreaks(t *testing.T) {
	r := newRig(t, t.TempDir())
	d, err := r.Begin(t.Context(), "lin")
	if err != nil {
		t.Fatal(err)
	}
	broken := io.MultiReader(bytes.NewReader(noise(1, 1<<20)), errReader{})
	if _, err := d.Add(t.Context(), "memory", broken); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Add: %v", err)
	}
	if _, _, err := d.Commit(t.Context(), "a", nil); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Commit of half a stream: %v", err)
	}
	if _, err := r.load(t, "lin", "a"); errdefs.CodeOf(err) != snapshot.CodeNotFound {
		t.Errorf("%v", err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrNoProgress }
