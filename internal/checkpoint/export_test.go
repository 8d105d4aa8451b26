package checkpoint

import (
	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/workspace"
)

// StoreOfBoot returns the store as it is after the machine has gone down and come up again.
func StoreOfBoot(dirs workspace.Dirs, images *snapshot.Store, boot string) *Store {
	s := NewStore(dirs, images)
	s.boot = boot
	return s
}
