package layer_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/layer"
)

// deepTree makes a chain of directories whose path is far longer than the kernel takes, with a file of 1 MiB at its end and one beside
// each hundredth directory.
func deepTree(t *testing.T, top string, levels int) (files int) {
	t.Helper()
	name := strings.Repeat("d", 100)
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		f, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(f, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(f); err != nil {
			t.Fatal(err)
		}
		files++
	}
	for i := range levels {
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 { // in a directory that comes after the chain as well as before it: the way back must find it
			for _, side := range []string{"a", "z"} {
				if err := unix.Mkdirat(fd, side, 0o700); err != nil {
					t.Fatal(err)
				}
				write(side + "/f" + strconv.Itoa(i))
			}
		}
		unix.Close(fd)
		fd = next
	}
	write("end")
	unix.Close(fd)
	return files
}

// TestX8_DiskUsageOfATreeDeeperThanAPath measures what no path leads to: a limit that it escaped would be none.
func TestX8_DiskUsageOfATreeDeeperThanAPath(t *testing.T) {
	dir := t.TempDir()
	files := deepTree(t, dir, 1000)
	if err := os.WriteFile(filepath.Join(dir, "z"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	files++
	n, err := layer.DiskUsage(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if least, most := int64(files)<<20, int64(files)<<20+16<<20; n.Bytes < least || n.Bytes > most || n.Files < int64(files) {
		t.Fatalf("%+v of %d files of 1 MiB", n, files)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range open {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir) {
			t.Errorf("%s is still open", to)
		}
	}
}
