package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ensureGuest copies the guest binary into the cache under the name of its content, unless it is there, and returns the copy's path.
func ensureGuest(cache, binary string) (string, error) {
	sum, err := fileHash(binary)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "guest-"+sum)
	if have, err := fileHash(path); err == nil && have == sum { // else a machine that went down has left half of it
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(tmp)
	if err := copyFile(binary, tmp, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

func fileHash(path string) (string, error) {
	h := sha256.New()
	if err := hashFile(h, path); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength], nil
}
