package layer

import (
	"context"
	"slices"
	"strings"
)

// node is a path in a stack of layers put together.
type node struct {
	src      Source // where the topmost layer has it; none for the root
	s        Stamp
	opaque   bool // hides what the layers below the stack have under it
	children map[string]*node
}

// tree puts layers together, bottom first. Whiteouts stay in it as nodes, since they also speak about what is below the stack.
func tree(ctx context.Context, layers []string) (*node, error) {
	root := &node{s: Stamp{Mode: dirMode}, children: map[string]*node{}}
	for _, dir := range layers {
		err := walk(ctx, dir, func(path string, s Stamp) error {
			root.put(path, Source{dir, path}, s)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return root, nil
}

const dirMode = 0o040755 // S_IFDIR | 0755

// put lays one path of the next layer over the tree.
func (n *node) put(path string, src Source, s Stamp) {
	for {
		name, rest, deeper := strings.Cut(path, "/")
		if deeper {
			n, path = n.children[name], rest
			continue
		}
		old := n.children[name]
		fresh := &node{src: src, s: s}
		if s.IsDir() {
			fresh.children = map[string]*node{}
			fresh.opaque = s.Opaque
			if old != nil {
				switch {
				case !old.s.IsDir(): // a file or a whiteout in between hides what is below it
					fresh.opaque = true
				case !s.Opaque:
					fresh.children, fresh.opaque = old.children, old.opaque
				}
			}
		}
		n.children[name] = fresh
		return
	}
}

// find returns the node at path. If the tree has none it reports whether the tree decides that nothing is there, so that
// the layers below need not be asked.
func (n *node) find(path string) (found *node, decided bool) {
	for {
		name, rest, deeper := strings.Cut(path, "/")
		next := n.children[name]
		if next == nil {
			return nil, n.opaque
		}
		if !deeper {
			return next, true
		}
		if !next.s.IsDir() {
			return nil, true
		}
		if decided = decided || next.opaque; decided {
			next = &node{s: next.s, opaque: true, children: next.children, src: next.src}
		}
		n, path = next, rest
	}
}

// each calls fn for every node below n in lexical order, parents first. It does not go below a node for which fn is false.
func (n *node) each(prefix string, fn func(path string, n *node) bool) {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := n.children[name]
		if fn(prefix+name, c) {
			c.each(prefix+name+"/", fn)
		}
	}
}
