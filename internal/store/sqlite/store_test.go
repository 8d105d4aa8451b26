package sqlite_test

import (
	"testing"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store/sqlite"
)

func open(t testing.TB, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	eventtest.Run(t, eventtest.Harness{
		Open: func(t *testing.T) event.Log { return open(t, t.TempDir()) },
		Delete: func(t *testing.T, log event.Log, sid id.Session) {
			if _, err := log.(*sqlite.Store).DeleteSession(t.Context(), sid); err != nil {
				t.Fatalf("delete: %v", err)
			}
		},
	})
}
