package daemon_test

import (
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/daemon"
	"perdure.dev/perdure/internal/errdefs"
)

// TestDataWithoutItsDatabaseIsLeftAlone starts a daemon where the database was lost: what sessions left is not swept away.
func TestDataWithoutItsDatabaseIsLeftAlone(t *testing.T) {
	for _, empty := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "data")
		kept := filepath.Join(dir, "sessions", "sess_01m8qe3f2tq04m25tgpn58xk9k", "workspace", "0", "upper", "f")
		if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(kept, []byte("work"), 0o600); err != nil {
			t.Fatal(err)
		}
		if empty {
			if err := os.WriteFile(filepath.Join(dir, "perdure.db"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := daemon.Run(t.Context(), daemon.Config{DataDir: dir, Ready: func() { panic("it serves") }})
		if errdefs.CodeOf(err) != "database_missing" || errdefs.HintOf(err) == "" {
			t.Errorf("run: %v", err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
}
