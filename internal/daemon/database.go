package daemon

import (
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/store/sqlite"
)

// refuseWithoutDatabase fails with database_missing where a data directory holds what sessions have left, and no database that knows of them:
// a new one would know no session, and everything on the disk would be swept away as nobody's.
func refuseWithoutDatabase(dir string) error {
	if st, err := os.Stat(filepath.Join(dir, sqlite.FileName)); err == nil && st.Size() > 0 {
		return nil
	}
	for _, name := range []string{"sessions", "checkpoints", "layers", "keys", "images"} {
		if entries, err := os.ReadDir(filepath.Join(dir, name)); err == nil && len(entries) > 0 {
			return errdefs.New(errdefs.Corrupt, "database_missing", "%s holds %s and no database", dir, name).
				WithHint("bring back " + sqlite.FileName + " with its -wal file, or choose another directory with --data; nothing was touched")
		}
	}
	return nil
}
