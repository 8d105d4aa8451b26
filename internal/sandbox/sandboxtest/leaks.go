package sandboxtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/sandbox"
)

// noTrace fails if anything of a destroyed sandbox is left on the host: processes, mounts, network namespaces, control groups, files.
func noTrace(t testing.TB, spec sandbox.Spec) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second) // the kernel takes a moment to bury the dead
	for {
		left := traces(spec)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("L1: left behind by %s:\n\t%s", spec.ID, strings.Join(left, "\n\t"))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func traces(spec sandbox.Spec) []string {
	var left []string
	if b, err := os.ReadFile("/proc/self/mounts"); err == nil {
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, spec.StateDir) || strings.Contains(line, spec.Root.Upper) {
				left = append(left, "mount "+strings.TrimSpace(line))
			}
		}
	}
	left = append(left, processes(spec)...)
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if strings.Contains(dir, string(spec.ID)) {
				left = append(left, "cgroup "+dir)
			}
		}
	}
	entries, _ := os.ReadDir(spec.StateDir)
	for _, e := range entries {
		left = append(left, "file "+filepath.Join(spec.StateDir, e.Name()))
	}
	return left
}

// processes lists every process that names the sandbox's state directory in its arguments, environment or mounts.
func processes(spec sandbox.Spec) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if filepath.Base(dir) == "self" {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil && (strings.Contains(string(b), spec.StateDir) || strings.Contains(string(b), string(spec.ID))) {
				left = append(left, "process "+dir+": "+strings.ReplaceAll(string(b[:min(len(b), 120)]), "\x00", " "))
				break
			}
		}
	}
	return left
}
