package sqlite_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/store/sqlite"
)

// TestFilesArePrivate: the log holds what people typed, also in a directory that others may look into.
func TestFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "perdure.*"))
		if err != nil || len(files) < 4 { // the database, its two companions, the lock
			t.Fatalf("%s: %v, %v", when, files, err)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s has the mode %v, %v", when, filepath.Base(f), info.Mode().Perm(), err)
			}
		}
	}
	defer unix.Umask(unix.Umask(0)) // the most open one
	var log bytes.Buffer
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	eventtest.NewSession(t, s, "one")
	check("new")
	if !strings.Contains(log.String(), "chmod 700") {
		t.Errorf("the log gives no warning: %s", &log)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "perdure.db"), 0o644); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	eventtest.NewSession(t, s, "two")
	check("made by an older version")
}

func TestDirectoryThatOthersMayWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	if errdefs.CodeOf(err) != "data_exposed" || errdefs.HintOf(err) == "" {
		t.Fatalf("open = %v, %v", s, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "perdure.db")); !os.IsNotExist(err) {
		t.Errorf("it has made a database: %v", err)
	}
}
