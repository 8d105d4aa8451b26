package layer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/layer"
)

// overlay is a real overlayfs mount, the judge of what layers mean.
type overlay struct{ merged, upper string }

func mount(t *testing.T, image string, layersBottomFirst []string) overlay {
	t.Helper()
	dir := t.TempDir()
	o := overlay{merged: filepath.Join(dir, "merged"), upper: filepath.Join(dir, "upper")}
	work := filepath.Join(dir, "work")
	for _, d := range []string{o.merged, o.upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lowers := slices.Clone(layersBottomFirst)
	slices.Reverse(lowers)
	lowers = append(lowers, image)
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=off,metacopy=off,index=off", strings.Join(lowers, ":"), o.upper, work)
	if err := unix.Mount("overlay", o.merged, "overlay", 0, opts); err != nil {
		if err == unix.EPERM {
			t.Skip("mounting overlayfs needs privileges")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(o.merged, unix.MNT_DETACH) })
	return o
}

// describe lists everything below dir in a form that can be compared: metadata, link targets, contents.
func describe(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s mode=%o uid=%d gid=%d", path[len(dir):], st.Mode, st.Uid, st.Gid)
		if !d.IsDir() {
			line += fmt.Sprintf(" mtime=%d.%d size=%d", st.Mtim.Sec, st.Mtim.Nsec, st.Size)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(b))
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameTree(t *testing.T, what, got, want string) {
	t.Helper()
	g, w := describe(t, got), describe(t, want)
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			t.Fatalf("%s: missing %s", what, w[i])
		case i >= len(w):
			t.Fatalf("%s: should not be there: %s", what, g[i])
		case g[i] != w[i]:
			t.Fatalf("%s:\n got %s\nwant %s", what, g[i], w[i])
		}
	}
}

// mutate does n random things below root, as a program inside a workspace might.
func mutate(t *testing.T, r *rand.Rand, root string, n int) {
	t.Helper()
	name := func() string { return string(rune('a' + r.IntN(5))) }
	path := func() string {
		p := root
		for range 1 + r.IntN(3) {
			p = filepath.Join(p, name())
		}
		return p
	}
	for range n {
		p := path()
		switch r.IntN(10) {
		case 0, 1, 2:
			os.WriteFile(p, bytes.Repeat([]byte{byte(r.Int())}, r.IntN(100)), 0o644)
		case 3:
			os.MkdirAll(p, 0o755)
		case 4:
			os.RemoveAll(p)
		case 5:
			os.Rename(p, path())
		case 6:
			os.Symlink(name(), p)
		case 7:
			os.Link(p, path())
		case 8:
			os.Chmod(p, fs.FileMode(0o600+r.IntN(0o177)))
		case 9:
			if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
				f.WriteAt([]byte{byte(r.Int())}, int64(r.IntN(200)))
				f.Close()
			}
		}
	}
}

func mkdir(t *testing.T) string {
	t.Helper()
	return t.TempDir()
}

// TestDeltasShowWhatTheWorkspaceShowed changes an overlay at random, takes a delta after each round, and mounts the image under the deltas:
// that has to look exactly like the live tree did, and so has everything that Merge and Flatten make of the deltas.
func TestDeltasShowWhatTheWorkspaceShowed(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			image := mkdir(t)
			mutate(t, r, image, 40)
			live := mount(t, image, nil)
			var layers []string
			index := layer.Index{}
			for round := range 5 {
				mutate(t, r, live.merged, 25)
				dst := mkdir(t)
				var err error
				if index, _, err = layer.Delta(t.Context(), live.upper, dst, index); err != nil {
					t.Fatal(err)
				}
				layers = append(layers, dst)
				sameTree(t, fmt.Sprintf("round %d", round), mount(t, image, layers).merged, live.merged)
			}
			merged := mkdir(t)
			if _, err := layer.Merge(t.Context(), merged, layers[1:4]); err != nil {
				t.Fatal(err)
			}
			sameTree(t, "merged", mount(t, image, []string{layers[0], merged, layers[4]}).merged, live.merged)

			all := mkdir(t)
			if _, err := layer.Flatten(t.Context(), all, append([]string{image}, layers...)); err != nil {
				t.Fatal(err)
			}
			sameTree(t, "flat", all, live.merged)
			checkDiff(t, image, layers, live.merged)
		})
	}
}

// checkDiff compares every two stacks with Diff and with the naked eye.
func checkDiff(t *testing.T, image string, layers []string, last string) {
	t.Helper()
	mounts := []string{mount(t, image, nil).merged}
	for i := range layers {
		mounts = append(mounts, mount(t, image, layers[:i+1]).merged)
	}
	for i := range mounts {
		for j := range mounts {
			diffs, err := layer.Diff(t.Context(), image, layers[:i], layers[:j])
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range diffs {
				got = append(got, fmt.Sprintf("%s %s", d.Path, d.Op))
			}
			slices.Sort(got)
			if want := naiveDiff(t, mounts[i], mounts[j]); !slices.Equal(got, want) {
				t.Fatalf("diff %d %d:\n got %v\nwant %v", i, j, got, want)
			}
		}
	}
}

func naiveDiff(t *testing.T, a, b string) []string {
	t.Helper()
	read := func(dir string) map[string]string {
		m := map[string]string{}
		for _, line := range describe(t, dir) {
			path, rest, _ := strings.Cut(line, " ")
			var kept []string
			for _, f := range strings.Fields(rest) {
				if !strings.HasPrefix(f, "mtime=") {
					kept = append(kept, f)
				}
			}
			m[path] = strings.Join(kept, " ")
		}
		return m
	}
	ma, mb := read(a), read(b)
	var out []string
	for p, x := range ma {
		if y, ok := mb[p]; !ok {
			out = append(out, p+" removed")
		} else if x != y {
			out = append(out, p+" modified")
		}
	}
	for p := range mb {
		if _, ok := ma[p]; !ok {
			out = append(out, p+" added")
		}
	}
	slices.Sort(out)
	return out
}

func TestDeltaCopiesOnlyWhatChanged(t *testing.T) {
	upper := mkdir(t)
	for i := range 1000 {
		p := filepath.Join(upper, fmt.Sprintf("d%d", i%10), fmt.Sprint(i))
		os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte("one"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	index, st, err := layer.Delta(t.Context(), upper, mkdir(t), layer.Index{})
	if err != nil || st.Files != 1000 {
		t.Fatalf("first delta: %+v, %v; want 1000 files", st, err)
	}
	index.Taken = index.Taken.Add(1e9) // as if the files had been written a second before
	os.WriteFile(filepath.Join(upper, "d3", "13"), []byte("two"), 0o644)
	os.Remove(filepath.Join(upper, "d4", "14"))
	index, st, err = layer.Delta(t.Context(), upper, mkdir(t), index)
	if err != nil || st.Files != 1 || st.Deleted != 1 || st.Bytes != 3 {
		t.Fatalf("second delta: %+v, %v; want 1 file of 3 bytes and 1 whiteout", st, err)
	}
	name := filepath.Join(mkdir(t), "index")
	if err := index.WriteFile(name); err != nil {
		t.Fatal(err)
	}
	index, ok := layer.ReadIndex(name)
	if !ok {
		t.Fatal("the index cannot be read back")
	}
	_, st, err = layer.Delta(t.Context(), upper, mkdir(t), index)
	if err != nil || st.Files > 1 || st.Deleted != 0 { // the file written just now may count once more
		t.Fatalf("delta after reading the index back: %+v, %v", st, err)
	}
}

func TestRacyFileIsCopiedAgain(t *testing.T) {
	upper := mkdir(t)
	p := filepath.Join(upper, "f")
	os.WriteFile(p, []byte("one"), 0o644)
	index, _, err := layer.Delta(t.Context(), upper, mkdir(t), layer.Index{})
	if err != nil {
		t.Fatal(err)
	}
	s := index.Stamps["f"]
	index.Taken = index.Taken.Add(-1e9) // the scan came no later than the write, as far as the clock can tell
	index.Stamps["f"] = s
	dst := mkdir(t)
	if _, st, err := layer.Delta(t.Context(), upper, dst, index); err != nil || st.Files != 1 {
		t.Fatalf("%+v, %v; a file as young as the scan must be copied again", st, err)
	}
}

func TestHolesStayHoles(t *testing.T) {
	upper, dst := mkdir(t), mkdir(t)
	f, err := os.Create(filepath.Join(upper, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("head"), 0)
	f.WriteAt([]byte("tail"), 1<<30)
	f.Close()
	_, st, err := layer.Delta(t.Context(), upper, dst, layer.Index{})
	if err != nil || st.Bytes > 1<<20 {
		t.Fatalf("copied %d bytes, %v; want just the data", st.Bytes, err)
	}
	var s unix.Stat_t
	if err := unix.Stat(filepath.Join(dst, "sparse"), &s); err != nil || s.Size != 1<<30+4 || s.Blocks > 2048 {
		t.Fatalf("size %d, %d blocks, %v", s.Size, s.Blocks, err)
	}
	b := make([]byte, 4)
	g, _ := os.Open(filepath.Join(dst, "sparse"))
	defer g.Close()
	if g.ReadAt(b, 1<<30); string(b) != "tail" {
		t.Fatalf("tail reads %q", b)
	}
}

func TestCanceledDeltaStops(t *testing.T) {
	upper := mkdir(t)
	os.WriteFile(filepath.Join(upper, "f"), nil, 0o644)
	ctx, cancel := context.WithCancelCause(t.Context())
	want := fmt.Errorf("no longer wanted")
	cancel(want)
	if _, _, err := layer.Delta(ctx, upper, mkdir(t), layer.Index{}); err != want {
		t.Fatalf("got %v, want the cause", err)
	}
}
