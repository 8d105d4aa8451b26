package event

import (
	"crypto/sha256"
	"encoding/hex"
)

// SumForTest is SHA-256 in lower-case hex.
func SumForTest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
