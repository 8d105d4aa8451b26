package checkpoint

import "perdure.dev/perdure/internal/workspace"

// StoreOfBoot returns the store as it is after the machine has gone down and come up again.
func StoreOfBoot(dirs workspace.Dirs, boot string) *Store {
	s := NewStore(dirs)
	s.boot = boot
	return s
}
