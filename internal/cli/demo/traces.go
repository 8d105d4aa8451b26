package demo

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// trace is a process that has to do with a directory.
type trace struct {
	pid  int
	args string
	rss  int64 // bytes
}

// processesOf finds the processes that have a path below dir among their arguments, environment, or working directory. All that a
// daemon starts has one: arguments of shims and sandboxes, environment and directory of commands without a sandbox.
func processesOf(dir string) []trace {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []trace
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p := filepath.Join("/proc", e.Name())
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))    // nil when it ended meanwhile
		environ, _ := os.ReadFile(filepath.Join(p, "environ")) // nil when it is somebody else's
		cwd, _ := os.Readlink(filepath.Join(p, "cwd"))
		if bytes.Contains(args, []byte(dir)) || bytes.Contains(environ, []byte(dir)) || strings.HasPrefix(cwd, dir) {
			out = append(out, trace{pid, strings.TrimSpace(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))), rssOf(p)})
		}
	}
	return out
}

// rssOf is the resident memory of a process, in bytes.
func rssOf(proc string) int64 {
	b, err := os.ReadFile(filepath.Join(proc, "statm"))
	if err != nil {
		return 0
	}
	if f := strings.Fields(string(b)); len(f) > 1 {
		n, _ := strconv.ParseInt(f[1], 10, 64) // 0 if it is no number
		return n * int64(os.Getpagesize())
	}
	return 0
}

// mountsBelow lists the mounts in a directory, deepest last.
func mountsBelow(dir string) []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []string
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) > 4 && strings.HasPrefix(f[4], dir) {
			out = append(out, f[4])
		}
	}
	return out
}

// devices are the names of this machine's network devices.
func devices() map[string]bool {
	out := map[string]bool{}
	list, err := net.Interfaces()
	if err != nil {
		return out
	}
	for _, i := range list {
		out[i.Name] = true
	}
	return out
}

// diskUse is what a tree takes on disk, in bytes.
func diskUse(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				n += st.Blocks * 512
			}
		}
		return nil
	})
	return n
}

// findFile finds a file by its name below dir, or "".
func findFile(dir, name string) string {
	found := ""
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() == name {
			found = p
			return fs.SkipAll
		}
		return nil
	})
	return found
}
