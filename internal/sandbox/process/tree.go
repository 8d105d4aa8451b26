package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// signalTree signals every descendant of pid, parents before children, and returns how many there were, zombies aside.
func signalTree(pid int, signal unix.Signal) int {
	children := childrenOf()
	count := 0
	queue := children[pid]
	for len(queue) > 0 {
		next := queue[0]
		queue = append(queue[1:], children[next]...)
		if unix.Kill(next, signal) == nil {
			count++
		}
	}
	return count
}

// childrenOf reads the whole process table: parent to children, zombies aside but for their own children.
func childrenOf() map[int][]int {
	tree := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return tree // only for a malformed pattern
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		pid, err1 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, err2 := strconv.Atoi(fields[1])
		if err1 == nil && err2 == nil {
			tree[parent] = append(tree[parent], pid)
		}
	}
	return tree
}
