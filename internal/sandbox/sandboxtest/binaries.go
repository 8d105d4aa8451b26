package sandboxtest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Binaries are the paths of built binaries.
type Binaries struct{ Engine, Guest string }

// Build builds the binaries of this module, once per version of their sources: the go command keeps a result that is up to date.
func Build(t testing.TB) Binaries {
	t.Helper()
	_, self, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("cannot find the sources")
	}
	module := filepath.Join(filepath.Dir(self), "..", "..", "..")
	sum := sha256.Sum256([]byte(module))
	dir := filepath.Join(os.TempDir(), "perdure-test-bin-"+hex.EncodeToString(sum[:4]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, ".lock")) // tests of several packages run at the same time
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./cmd/perdure-engine", "./cmd/perdure-guest")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return Binaries{Engine: filepath.Join(dir, "perdure-engine"), Guest: filepath.Join(dir, "perdure-guest")}
}
