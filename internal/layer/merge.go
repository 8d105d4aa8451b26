package layer

import (
	"context"
	"path/filepath"
	"slices"
)

// Merge writes into the empty directory dst one layer that stands for several, which are given bottom first. The result goes where they
// went: it keeps the whiteouts and opaque marks that speak about what is below.
func Merge(ctx context.Context, dst string, layers []string) (Stats, error) {
	r, err := perform(ctx, job{Do: "merge", Dirs: layers, Dst: dst})
	return r.Stats, err
}

// Flatten writes into the empty directory dst the plain files that the layers, given bottom first, make together with nothing below.
func Flatten(ctx context.Context, dst string, layers []string) (Stats, error) {
	r, err := perform(ctx, job{Do: "flatten", Dirs: layers, Dst: dst})
	return r.Stats, err
}

func combine(ctx context.Context, dst string, layers []string, marks bool) (Stats, error) {
	root, err := tree(ctx, layers)
	if err != nil || len(layers) == 0 {
		return Stats{}, err
	}
	var st Stats
	var dirs, files []change
	opaque := map[string]bool{}
	root.each("", func(path string, n *node) bool {
		switch c := (change{path, n.src.String(), n.s}); {
		case n.s.IsDir():
			dirs = append(dirs, c)
			opaque[path] = n.opaque
		case !n.s.IsWhiteout():
			files = append(files, c)
			st.Files++
		case marks:
			files = append(files, c)
			st.Deleted++
		}
		return true
	})
	for _, d := range dirs {
		target := filepath.Join(dst, d.path)
		if _, err := copyEntry(d.src, target, d.s); err != nil {
			return st, err
		}
		if err := settleOpaque(target, marks && opaque[d.path]); err != nil {
			return st, err
		}
	}
	if st.Bytes, err = copyFiles(ctx, dst, files); err != nil {
		return st, err
	}
	for _, d := range slices.Backward(dirs) {
		if err := settle(filepath.Join(dst, d.path), d.s); err != nil {
			return st, err
		}
	}
	return st, copyRootMeta(layers[len(layers)-1], dst)
}
