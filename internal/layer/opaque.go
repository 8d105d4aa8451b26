package layer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// overlaySpace returns the name space of the attributes that overlayfs keeps for itself. A privileged mount looks at
// trusted.overlay alone; there user.overlay is for whoever wants it, and a program inside may set it to hide files from us. Without
// privileges only the latter can be read and written.
var overlaySpace = sync.OnceValue(func() string {
	if os.Geteuid() == 0 && inInitialUserNamespace() {
		return "trusted.overlay."
	}
	return "user.overlay."
})

// Marks names the way in which layers made by this process are marked. One that reads another way would take what a layer hides for shown.
func Marks() string { return strings.TrimSuffix(overlaySpace(), ".") }

// inInitialUserNamespace reports whether all user ids map to themselves. The root of any other name space may not set trusted
// attributes.
func inInitialUserNamespace() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || bytes.Equal(bytes.Join(bytes.Fields(ids), []byte(" ")), []byte("0 0 4294967295"))
}

// opaqueName is the extended attribute that marks a directory as hiding what is below it.
func opaqueName() string { return overlaySpace() + "opaque" }

// ofOverlay reports whether an attribute is overlayfs's own.
func ofOverlay(name string) bool {
	return strings.HasPrefix(name, overlaySpace()) || strings.HasPrefix(name, "trusted.overlay.")
}

func isOpaque(dir string) bool {
	var buf [8]byte
	n, err := unix.Lgetxattr(dir, opaqueName(), buf[:])
	return err == nil && n > 0 && buf[0] == 'y'
}

// settleOpaque makes the mark of dir what it should be, whatever was copied.
func settleOpaque(dir string, want bool) error {
	switch {
	case isOpaque(dir) == want:
		return nil
	case want:
		if err := unix.Lsetxattr(dir, opaqueName(), []byte("y"), 0); err != nil {
			return fmt.Errorf("mark %s opaque: %w", dir, err)
		}
	default:
		if err := unix.Lremovexattr(dir, opaqueName()); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("clear the opaque mark of %s: %w", dir, err)
		}
	}
	return nil
}
