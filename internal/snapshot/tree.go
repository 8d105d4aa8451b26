package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
)

// Ref is a stream in the store.
type Ref struct {
	Root  ID    // of the topmost node; of the only chunk when Depth is 0
	Depth int   // levels of nodes
	Size  int64 // bytes
}

// entry is a line of a node: what is there next, and how long it is. The zero ID is a run of zeros.
type entry struct {
	id   ID
	size int64
}

const (
	entrySize = len(ID{}) + 8
	minLines  = 32
	maxLines  = 1024
	// maxDepth bounds what a damaged or hostile manifest can ask for; 2^63 bytes in pages need fewer.
	maxDepth = 12
)

// endsNode says whether a node ends with the line: after one of 256, so that a node has some 10 KB, and that the same lines make the same
// nodes wherever they stand.
func endsNode(lines int, id ID) bool {
	return lines >= maxLines || lines >= minLines && id[0] == 0 && !id.zero()
}

// grow stores the nodes above the lines, and returns the topmost.
func grow(lines []entry, put func([]byte) (ID, error)) (Ref, error) {
	var ref Ref
	for _, e := range lines {
		ref.Size += e.size
	}
	if len(lines) == 0 {
		return ref, nil
	}
	for ; len(lines) > 1; ref.Depth++ {
		var above []entry
		for from := 0; from < len(lines); {
			to, size := from, int64(0)
			for ended := false; to < len(lines) && !ended; to++ {
				size += lines[to].size
				ended = endsNode(to-from+1, lines[to].id)
			}
			id, err := put(encodeNode(lines[from:to]))
			if err != nil {
				return Ref{}, err
			}
			above = append(above, entry{id, size})
			from = to
		}
		lines = above
	}
	ref.Root = lines[0].id
	return ref, nil
}

func encodeNode(lines []entry) []byte {
	b := make([]byte, 0, len(lines)*entrySize)
	for _, e := range lines {
		b = append(b, e.id[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(e.size))
	}
	return b
}

func decodeNode(b []byte) ([]entry, error) {
	if len(b) == 0 || len(b)%entrySize != 0 || len(b)/entrySize > maxLines {
		return nil, fmt.Errorf("a node of %d bytes", len(b))
	}
	lines := make([]entry, len(b)/entrySize)
	for i := range lines {
		size := binary.LittleEndian.Uint64(b[i*entrySize+len(ID{}):])
		if size == 0 || size > math.MaxInt64 {
			return nil, fmt.Errorf("a line of %d bytes", size)
		}
		lines[i].size = int64(size)
		copy(lines[i].id[:], b[i*entrySize:])
	}
	return lines, nil
}

// walker goes through trees.
type walker struct {
	load func(context.Context, kind, ID) ([]byte, error)
	// node, if set, says whether to go below a node.
	node func(ID) bool
	// leaf is told each line of the lowest nodes, in order.
	leaf func(e entry, offset int64) error
}

func (w walker) walk(ctx context.Context, r Ref) error {
	if r.Depth < 0 || r.Depth > maxDepth || r.Size < 0 {
		return corrupt("a stream of %d levels and %d bytes", r.Depth, r.Size)
	}
	if r.Size == 0 {
		return nil
	}
	return w.below(ctx, entry{r.Root, r.Size}, r.Depth, 0)
}

func (w walker) below(ctx context.Context, e entry, depth int, offset int64) error {
	if depth == 0 {
		return w.leaf(e, offset)
	}
	if w.node != nil && !w.node(e.id) {
		return nil
	}
	b, err := w.load(ctx, node, e.id)
	if err != nil {
		return err
	}
	lines, err := decodeNode(b)
	if err != nil {
		return corrupt("node %s: %v", e.id, err)
	}
	left := e.size
	for _, line := range lines {
		if line.size > left {
			return corrupt("node %s is longer than the %d bytes that its parent says", e.id, e.size)
		}
		left -= line.size
	}
	if left != 0 {
		return corrupt("node %s is %d bytes shorter than its parent says", e.id, left)
	}
	for _, line := range lines {
		if err := w.below(ctx, line, depth-1, offset); err != nil {
			return err
		}
		offset += line.size
	}
	return nil
}
