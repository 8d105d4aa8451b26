package service

import (
	"slices"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// maxName is how long a session's name may be, in bytes.
const maxName = 63

// reserved are words that the command line reads in the place of a session: perdure checkpoints ls S.
var reserved = []string{"ls", "rm"}

// checkName refuses what cannot be a session's name. Error: invalid_name.
func checkName(name string) error {
	bad := errdefs.New(errdefs.Invalid, "invalid_name", "%q cannot be a session's name", name)
	switch {
	case slices.Contains(reserved, name):
		return bad.WithHint("it is a word of the command line; choose another")
	case id.Valid("sess", name):
		return bad.WithHint("it is the form of a session's id; choose another")
	case name == "" || len(name) > maxName || strings.ContainsRune("._-", rune(name[0])) || strings.ContainsFunc(name, notInName):
		return bad.WithHint("use 1 to %d lower-case letters, digits, '.', '_' and '-', starting with a letter or digit", maxName)
	}
	return nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}
