package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// Binary returns path, or if that is empty the binary name in the directory of the running one. Error: engine_missing.
func Binary(path, name string) (string, error) {
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), name)
	}
	if _, err := os.Stat(path); err != nil {
		return "", errdefs.New(errdefs.Unavailable, "engine_missing", "the binary %s is not there", path).
			WithHint("build it with: go build -o %s ./cmd/...", filepath.Dir(path))
	}
	return path, nil
}

// MachineID derives the machine id of a session's sandboxes: it stays for the session and differs between forks.
func MachineID(session id.Session) string {
	sum := sha256.Sum256([]byte("perdure machine id " + string(session)))
	return hex.EncodeToString(sum[:16])
}
