package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/workspace"
)

// Where files come and go together, they must not do so beside those that are needed next.
func TestNewFilesDoNotPayForDeletedOnes(t *testing.T) {
	_, dirs := open(t)
	w, err := workspace.Open(dirs, "sess_test", "host")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dirs.Session("sess_test")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("L1: to open a workspace makes its directory: %v", err)
	}
	if err := w.Sweep(); err != nil { // of nothing
		t.Error(err)
	}
	if _, err := w.Begin(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dirs.Root, &disk); err != nil {
		t.Fatal(err)
	}
	if disk.Type != unix.EXT4_SUPER_MAGIC {
		t.Skip("only ext4 has the flag")
	}
	for _, dir := range []string{dirs.Layers(), filepath.Join(dirs.Root, "run"), filepath.Join(dirs.Session("sess_test"), "workspace")} {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		f.Close()
		if err != nil || flags&0x00020000 == 0 {
			t.Errorf("%s: flags %#x, %v", dir, flags, err)
		}
	}
}
