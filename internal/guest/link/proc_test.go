package link_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const (
	stopSignal   = syscall.SIGSTOP
	redialSignal = syscall.SIGUSR1
)

func kill(pid int) { syscall.Kill(pid, syscall.SIGKILL) }

// descendants returns the live processes below root.
func descendants(root int) []int {
	parent := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(f) < 2 || f[0] == "Z" || f[0] == "X" {
			continue
		}
		parent[pid], _ = strconv.Atoi(f[1])
	}
	var found []int
	for pid := range parent {
		for p, n := parent[pid], 0; p > 1 && n < 100; p, n = parent[p], n+1 {
			if p == root {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}
