package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
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
	// A memory image has it open, and looks at its time: the same in every cache, so that an image can move.
	if err := os.Chtimes(tmp, guestTime, guestTime); err != nil {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

// guestTime is when all copies of guest binaries were written.
var guestTime = time.Unix(1_700_000_000, 0)

func fileHash(path string) (string, error) {
	h := sha256.New()
	if err := hashFile(h, path); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength], nil
}
