package layer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Stats counts what a layer holds.
type Stats struct {
	Files   int   // changed or new entries that are not directories
	Deleted int   // whiteouts
	Bytes   int64 // data copied; shared clones count nothing
}

// copiers is how many files are copied at the same time. Copying small files waits for metadata, not for the processor.
const copiers = 4

// change is one path to be written into a layer, and where it is copied from.
type change struct {
	path string
	src  string
	s    Stamp
}

// Delta copies into the empty directory dst what changed in upper since the index was taken, in the form of a layer that goes on top
// of the layers that hold everything up to then. Nothing may write to upper meanwhile. It returns the new index.
func Delta(ctx context.Context, upper, dst string, since Index) (Index, Stats, error) {
	r, err := perform(ctx, job{Do: "delta", Dirs: []string{upper}, Dst: dst, Since: since})
	return r.Index, r.Stats, err
}

func delta(ctx context.Context, upper, dst string, since Index) (Index, Stats, error) {
	now, err := scan(ctx, upper)
	if err != nil {
		return Index{}, Stats{}, err
	}
	p := plan(upper, now, since)
	st := Stats{Deleted: len(p.deleted)}
	for _, d := range p.dirs {
		target := filepath.Join(dst, d.path)
		if _, err := copyEntry(d.src, target, d.s); err != nil {
			return Index{}, st, err
		}
		if err := settleOpaque(target, p.opaque[d.path]); err != nil {
			return Index{}, st, err
		}
	}
	n, err := copyFiles(ctx, dst, p.files)
	st.Files, st.Bytes = len(p.files), n
	if err != nil {
		return Index{}, st, err
	}
	for _, path := range p.deleted {
		if err := unix.Mknod(filepath.Join(dst, path), unix.S_IFCHR, 0); err != nil {
			return Index{}, st, fmt.Errorf("mark %s as deleted: %w", path, err)
		}
	}
	for _, d := range slices.Backward(p.dirs) { // children first: making them moved their parents' times
		if err := settle(filepath.Join(dst, d.path), d.s); err != nil {
			return Index{}, st, err
		}
	}
	return now, st, copyRootMeta(upper, dst)
}

// work is what Delta has to write.
type work struct {
	dirs    []change // parents first
	files   []change
	opaque  map[string]bool
	deleted []string
}

func plan(upper string, now, since Index) work {
	w := work{opaque: map[string]bool{}}
	need := map[string]bool{} // directories that must exist in the layer
	needParents := func(path string) {
		for p, ok := parent(path); ok && !need[p]; p, ok = parent(p) {
			need[p] = true
		}
	}
	fresh := map[string]bool{} // directories whose whole contents count as new
	for _, path := range sortedPaths(now) {
		s := now.Stamps[path]
		up, nested := parent(path)
		inFresh := nested && fresh[up]
		if s.IsDir() {
			old, was := since.Stamps[path]
			// The number of a deleted directory may be given to its successor, which then is opaque if anything lies below.
			replaced := was && old.IsDir() && (old.Ino != s.Ino || s.Opaque && !old.Opaque)
			fresh[path] = inFresh || !was || !old.IsDir() || replaced
			// The mark of a directory that the layers below already show as opaque would hide what they have in it.
			w.opaque[path] = replaced || fresh[path] && s.Opaque
			if fresh[path] || !since.unchanged(path, s) {
				need[path] = true
				needParents(path)
			}
			continue
		}
		if inFresh || !since.unchanged(path, s) {
			w.files = append(w.files, change{path, filepath.Join(upper, path), s})
			needParents(path)
		}
	}
	for path, old := range since.Stamps {
		if _, still := now.Stamps[path]; still || old.IsWhiteout() {
			continue
		}
		if up, nested := parent(path); nested {
			s, ok := now.Stamps[up]
			if !ok || !s.IsDir() || w.opaque[up] || fresh[up] {
				continue // hidden with its parent
			}
		}
		w.deleted = append(w.deleted, path)
		needParents(path)
	}
	slices.Sort(w.deleted)
	for path := range need {
		w.dirs = append(w.dirs, change{path, filepath.Join(upper, path), now.Stamps[path]})
	}
	slices.SortFunc(w.dirs, func(a, b change) int { return cmp.Compare(a.path, b.path) })
	return w
}

// sortedPaths returns the index's paths, parents before what they hold.
func sortedPaths(x Index) []string {
	paths := make([]string, 0, len(x.Stamps))
	for p := range x.Stamps {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

// copyFiles copies entries that are not directories, keeping hard links among them. It returns the bytes written.
func copyFiles(ctx context.Context, dst string, files []change) (int64, error) {
	var singles []change
	linked := map[uint64][]change{}
	for _, f := range files {
		if f.s.Nlink > 1 && !f.s.IsWhiteout() {
			linked[f.s.Ino] = append(linked[f.s.Ino], f)
		} else {
			singles = append(singles, f)
		}
	}
	groups := make([][]change, 0, len(singles)+len(linked))
	for _, f := range singles {
		groups = append(groups, []change{f})
	}
	for _, g := range linked {
		groups = append(groups, g)
	}
	bytes := make([]int64, copiers)
	g, ctx := errgroup.WithContext(ctx)
	for w := range copiers {
		g.Go(func() error {
			for i := w; i < len(groups); i += copiers {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				n, err := copyLinked(dst, groups[i])
				bytes[w] += n
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	var total int64
	for _, n := range bytes {
		total += n
	}
	return total, err
}

// copyLinked copies the first of a group of names for one file, and links the others to it.
func copyLinked(dst string, group []change) (int64, error) {
	first := filepath.Join(dst, group[0].path)
	n, err := copyEntry(group[0].src, first, group[0].s)
	if err != nil {
		return n, err
	}
	for _, other := range group[1:] {
		if err := os.Link(first, filepath.Join(dst, other.path)); err != nil {
			return n, err
		}
	}
	return n, nil
}

// copyRootMeta gives the layer's root the mode, owner and times of the upper's.
func copyRootMeta(upper, dst string) error {
	s, err := stampOf(strings.TrimSuffix(upper, "/"))
	if err == nil {
		err = copyOwner(upper, dst, s)
	}
	if err != nil {
		return err
	}
	return settle(dst, s)
}
