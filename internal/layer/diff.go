package layer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Op says how a path differs between two stacks.
type Op string

// The differences.
const (
	Added    Op = "added"    // only the second has it
	Removed  Op = "removed"  // only the first has it
	Modified Op = "modified" // content, type, link target or mode differ
)

// Difference is one path that differs. A side that does not have it has no source.
type Difference struct {
	Path     string // absolute, inside the workspace
	Op       Op
	From, To Stamp
	FromSrc  Source
	ToSrc    Source
}

// Diff compares what two stacks of layers show. Each is given bottom first, over the same image; image may be "", and is then taken as
// empty. Layers that both begin with are not read. Times are not compared: a copy may well be younger and the same.
func Diff(ctx context.Context, image string, from, to []string) ([]Difference, error) {
	r, err := perform(ctx, job{Do: "diff", Image: image, Dirs: from, To: to})
	return r.Differences, err
}

func diff(ctx context.Context, image string, from, to []string) ([]Difference, error) {
	common := 0
	for common < len(from) && common < len(to) && from[common] == to[common] {
		common++
	}
	below := slicesReversed(from[:common], image)
	a, err := tree(ctx, from[common:])
	if err != nil {
		return nil, err
	}
	b, err := tree(ctx, to[common:])
	if err != nil {
		return nil, err
	}
	d := differ{ctx: ctx, below: below, a: a, b: b, seen: map[string]bool{}}
	d.side(a)
	d.side(b)
	return d.out, d.err
}

// slicesReversed returns the layers top first with the image last.
func slicesReversed(layers []string, image string) []string {
	out := make([]string, 0, len(layers)+1)
	for i := len(layers) - 1; i >= 0; i-- {
		out = append(out, layers[i])
	}
	if image != "" {
		out = append(out, image)
	}
	return out
}

type differ struct {
	ctx   context.Context
	below []string // top first
	a, b  *node
	seen  map[string]bool
	out   []Difference
	err   error
}

// place is where one side has a path.
type place struct {
	src Source
	s   Stamp
}

func (d *differ) side(n *node) {
	n.each("", func(path string, _ *node) bool {
		if d.err == nil && d.ctx.Err() != nil {
			d.err = context.Cause(d.ctx)
		}
		if d.err != nil {
			return false
		}
		d.compare(path)
		return true
	})
}

func (d *differ) compare(path string) {
	if d.seen[path] {
		return
	}
	d.seen[path] = true
	a, okA := d.resolve(d.a, path)
	b, okB := d.resolve(d.b, path)
	diff := Difference{Path: "/" + path, From: a.s, To: b.s, FromSrc: a.src, ToSrc: b.src}
	switch {
	case !okA && !okB:
		return
	case !okA:
		diff.Op = Added
	case !okB:
		diff.Op = Removed
	default:
		same, err := sameEntry(d.ctx, a, b)
		if errors.Is(err, fs.ErrNotExist) { // one of them changes while we look
			same, err = false, nil
		}
		if err != nil || same {
			if err != nil && d.err == nil {
				d.err = err
			}
			d.hiddenBelow(path)
			return
		}
		diff.Op = Modified
	}
	d.out = append(d.out, diff)
	d.hiddenBelow(path)
}

// hiddenBelow compares what the common layers have under a directory that one side hides or removed.
func (d *differ) hiddenBelow(path string) {
	hides := func(n *node) bool {
		f, _ := n.find(path)
		return f != nil && (f.opaque || !f.s.IsDir())
	}
	if !hides(d.a) && !hides(d.b) {
		return
	}
	names := map[string]bool{}
	for _, layer := range d.below {
		for _, name := range (Source{layer, path}).names() {
			names[name] = true
		}
	}
	for name := range names {
		d.compareTree(path + "/" + name)
	}
}

// compareTree compares a path that only the common layers may have, and all below it.
func (d *differ) compareTree(path string) {
	if d.err != nil || d.seen[path] {
		return
	}
	d.compare(path)
	p, ok := lookup(d.below, path)
	if !ok || !p.s.IsDir() {
		return
	}
	for _, layer := range d.below {
		for _, name := range (Source{layer, path}).names() {
			d.compareTree(path + "/" + name)
		}
	}
}

// resolve finds what a side shows at path.
func (d *differ) resolve(n *node, path string) (place, bool) {
	f, decided := n.find(path)
	if f != nil {
		return place{f.src, f.s}, !f.s.IsWhiteout()
	}
	if decided {
		return place{}, false
	}
	return lookup(d.below, path)
}

// lookup finds what a stack of layers, top first, shows at path. Parents are checked too: each may be hidden.
func lookup(layers []string, path string) (place, bool) {
	parts := strings.Split(path, "/")
	for _, layer := range layers {
		at := layer
		for i, part := range parts {
			at = filepath.Join(at, part)
			s, err := stampOf(at)
			if err != nil {
				if i > 0 && isOpaque(filepath.Dir(at)) {
					return place{}, false
				}
				break // ask the layer below
			}
			last := i == len(parts)-1
			if last {
				return place{Source{layer, path}, s}, !s.IsWhiteout()
			}
			if !s.IsDir() {
				return place{}, false
			}
			if s.Opaque {
				layers = nil // nothing below counts; go on inside this layer
			}
		}
		if layers == nil {
			return place{}, false
		}
	}
	return place{}, false
}

func sameEntry(ctx context.Context, a, b place) (bool, error) {
	if a.src == b.src {
		return true, nil
	}
	if a.s.Mode != b.s.Mode {
		return false, nil
	}
	switch a.s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if a.s.Size != b.s.Size {
			return false, nil
		}
		return sameContent(ctx, a.src, b.src, a.s.Size)
	case unix.S_IFLNK:
		ta, errA := a.src.target()
		tb, errB := b.src.target()
		return ta == tb, errors.Join(errA, errB)
	case unix.S_IFDIR:
		return true, nil
	default:
		return a.s.Rdev == b.s.Rdev, nil
	}
}

// sameContent compares two files of size bytes. A program may be at work in them, and may have made them larger than anybody can read:
// where both have a hole there is nothing to compare.
func sameContent(ctx context.Context, a, b Source, size int64) (bool, error) {
	fa, err := a.Open()
	if err != nil {
		return false, err
	}
	defer fa.Close()
	fb, err := b.Open()
	if err != nil {
		return false, err
	}
	defer fb.Close()
	bufA, bufB := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		if at = min(nextData(fa, at, size), nextData(fb, at, size)); at >= size {
			return true, nil
		}
		for end := at + dataRun; at < end; {
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			n, errA := fa.ReadAt(bufA, at)
			m, errB := fb.ReadAt(bufB, at)
			if n != m || !bytes.Equal(bufA[:n], bufB[:m]) {
				return false, nil
			}
			for _, err := range []error{errA, errB} {
				if err != nil && !errors.Is(err, io.EOF) {
					return false, err
				}
			}
			if errA != nil || errB != nil {
				return true, nil
			}
			at += int64(n)
		}
	}
}

// dataRun is how much is compared before holes are looked for again.
const dataRun = 4 << 20

// nextData returns where data begins in a file, from at on: at itself where the file system does not say, and size where none is.
func nextData(f *os.File, at, size int64) int64 {
	next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size
	case err != nil:
		return at
	}
	return next
}
