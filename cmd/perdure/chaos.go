//go:build chaos

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// step makes the daemon die where a test wants it to. The file that PERDURE_CHAOS names is read at every point, and absent while
// nothing is wanted. Its first line is an order, and whatever follows only makes it a new one:
//
//	record FILE          append the name of each point to FILE
//	die COUNT POINT      kill this process with SIGKILL when it comes to POINT for the COUNTth time since the order was given
func step(getenv func(string) string) func(point string) {
	control := getenv("PERDURE_CHAOS")
	if control == "" {
		return nil
	}
	var mu sync.Mutex // guards the two below
	var order string
	seen := map[string]int{}
	return func(point string) {
		mu.Lock()
		defer mu.Unlock()
		b, err := os.ReadFile(control)
		if err != nil {
			return
		}
		if string(b) != order {
			order, seen = string(b), map[string]int{}
		}
		seen[point]++
		line, _, _ := strings.Cut(order, "\n")
		if file, ok := strings.CutPrefix(line, "record "); ok {
			record(file, point)
			return
		}
		if line == fmt.Sprintf("die %d %s", seen[point], point) {
			die()
		}
	}
}

func record(file, point string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, point)
		f.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// die does not return, and no other point is passed meanwhile.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // cannot fail
	select {}
}
