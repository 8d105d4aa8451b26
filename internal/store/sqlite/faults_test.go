package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite"
)

const dbFile = "perdure.db"

func TestSecondProcessIsRefusedWithThePid(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	wantCode(t, err, store.CodeDataLocked)
	if !strings.Contains(err.Error(), fmt.Sprint("pid ", os.Getpid())) || errdefs.HintOf(err) == "" {
		t.Errorf("message %q, hint %q", err, errdefs.HintOf(err))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestCloseFlushesAndMayBeRepeated(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	sid := eventtest.NewSession(t, s, "close")
	var wg sync.WaitGroup
	results := make([]error, 200)
	for i := range results {
		wg.Go(func() {
			_, results[i] = s.Append(t.Context(), event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{eventtest.User("x")}})
		})
	}
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, err := range s.Subscribe(t.Context(), sid, 0) {
			last = err
		}
		ended <- last
	}()
	for range 3 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	wantCode(t, <-ended, store.CodeStoreClosed)
	wg.Wait()
	stored := event.Seq(1)
	for _, err := range results {
		if err == nil {
			stored++
			continue
		}
		wantCode(t, err, store.CodeStoreClosed)
	}
	_, err := s.Read(t.Context(), sid, 0, 1)
	wantCode(t, err, store.CodeStoreClosed)
	if head, err := open(t, dir).Head(t.Context(), sid); err != nil || head.Seq != stored {
		t.Errorf("head %d, %v; %d appends were acknowledged", head.Seq, err, stored)
	}
}

// One bad call in a batch does not fail the others.
func TestBadAppendFailsAlone(t *testing.T) {
	s := open(t, t.TempDir())
	sid := eventtest.NewSession(t, s, "shared")
	used := id.NewEvent()
	first := eventtest.User("first")
	first.ID = used
	eventtest.Append(t, s, event.Append{Session: sid, Expected: 1, Events: []event.Draft{first}})
	const n = 300
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		a := event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{eventtest.User("good"), eventtest.User("good")}}
		switch i % 10 {
		case 3:
			a.Events[1].ID = used // found out by the database only, after the first of the two was written
		case 6:
			a.Expected = 1
		}
		wg.Go(func() { _, errs[i] = s.Append(t.Context(), a) })
	}
	wg.Wait()
	for i, err := range errs {
		switch i % 10 {
		case 3:
			wantCode(t, err, event.CodeInvalid)
		case 6:
			wantCode(t, err, event.CodeSeqConflict)
		default:
			if err != nil {
				t.Errorf("a good append failed: %v", err)
			}
		}
	}
	if head, _ := s.Head(t.Context(), sid); head.Seq != 2+2*n*8/10 {
		t.Errorf("head %d, want %d", head.Seq, 2+2*n*8/10)
	}
	verify(t, s, sid)
}

// X8: a full disk is a clear error, nothing is lost, and work goes on when there is room again.
func TestX8_FullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		if !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
		t.Skip("only root can mount a small disk to fill")
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	s := open(t, dir)
	sid := eventtest.NewSession(t, s, "full")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 4000)
	acked := event.Seq(1)
	var err error
	for range 2000 {
		if _, err = s.Append(t.Context(), event.Append{Session: sid, Expected: acked, Events: []event.Draft{eventtest.User(text)}}); err != nil {
			break
		}
		acked++
	}
	wantCode(t, err, event.CodeDiskFull)
	if errdefs.KindOf(err) != errdefs.Exhausted || errdefs.HintOf(err) == "" {
		t.Errorf("kind %s, hint %q", errdefs.KindOf(err), errdefs.HintOf(err))
	}
	if all := eventtest.All(t, s, sid); len(all) != int(acked) {
		t.Errorf("%d events are there, %d were acknowledged", len(all), acked)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventtest.Append(t, s, event.Append{Session: sid, Expected: acked, Events: []event.Draft{eventtest.User("again")}})
	verify(t, s, sid)
}

func TestNewerDataIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	sid := eventtest.NewSession(t, s, "future")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	execSQL(t, dir, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	_, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	wantCode(t, err, store.CodeDataNewer)
	if errdefs.HintOf(err) == "" {
		t.Error("no hint")
	}
	execSQL(t, dir, "DELETE FROM goose_db_version WHERE version_id = 9999")
	verify(t, open(t, dir), sid)
}

// A damaged file is log_corrupt with a hint, at the latest when the damaged part is read, and never a wrong answer.
func TestH2_DamageIsNoticed(t *testing.T) {
	seed := t.TempDir()
	s := open(t, seed)
	sid := eventtest.NewSession(t, s, "damaged")
	for i := range 200 {
		eventtest.Append(t, s, event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{eventtest.User(fmt.Sprint(i, strings.Repeat("y", 500)))}})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(seed, dbFile))
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(name string, harm func(raw []byte) []byte) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, dbFile), harm(append([]byte(nil), whole...)), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
			if err != nil {
				wantCode(t, err, event.CodeLogCorrupt)
				if errdefs.HintOf(err) == "" {
					t.Error("no hint")
				}
				return
			}
			defer s.Close()
			r, err := s.Verify(t.Context(), string(sid))
			if err == nil && r.OK() {
				t.Error("nobody noticed")
			} else if err != nil {
				wantCode(t, err, event.CodeLogCorrupt)
			}
		})
	}
	damaged("header", func(raw []byte) []byte { copy(raw, "not a database"); return raw })
	damaged("empty pages", func(raw []byte) []byte { clear(raw[8192:]); return raw })
	damaged("cut in half", func(raw []byte) []byte { return raw[:len(raw)/2] })
	for _, part := range []string{`57yyy`, `{"text":"123`} { // one byte in an event's data
		at := strings.Index(string(whole), part)
		if at < 0 {
			t.Fatalf("%s is not in the file", part)
		}
		damaged("one byte of "+part, func(raw []byte) []byte { raw[at+len(part)-1] ^= 1; return raw })
	}
}

// Verify names the first event that was tampered with, and rows that are not what the log says.
func TestVerifyNamesTheFirstBadEvent(t *testing.T) {
	for name, c := range map[string]struct {
		sql string
		bad event.Seq
	}{
		"data":           {"UPDATE events SET data = replace(data, 'x', 'z') WHERE seq = 3", 3},
		"time":           {"UPDATE events SET created_at = created_at + 1 WHERE seq = 4", 4},
		"actor":          {"UPDATE events SET actor_id = 'other' WHERE seq = 2", 2},
		"hash":           {"UPDATE events SET hash = replace(hash, substr(hash, 1, 1), 'g') WHERE seq = 5", 5},
		"removed":        {"DELETE FROM events WHERE seq = 3", 3},
		"end removed":    {"DELETE FROM events WHERE seq >= 5", 5},
		"type":           {"UPDATE events SET type = 'who.knows' WHERE seq = 4", 4},
		"row":            {"UPDATE sessions SET status = 'finished'", 0},
		"usage":          {"UPDATE sessions SET usage_input = 1", 0},
		"checkpoint row": {"UPDATE checkpoints SET cut_seq = 2", 0},
		"lost row":       {"DELETE FROM checkpoints", 0},
		"layers":         {"DELETE FROM layer_refs", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			sid := eventtest.NewSession(t, s, "verify")
			eventtest.Append(t, s, event.Append{Session: sid, Expected: 1, Events: []event.Draft{eventtest.User("x"), eventtest.User("x"), eventtest.User("x")}})
			checkpoint(t, s, sid, "c", "l1")
			verify(t, s, sid)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			execSQL(t, dir, c.sql)
			r, err := open(t, dir).Verify(t.Context(), "verify")
			if err != nil || r.OK() || r.BadSeq != c.bad {
				t.Errorf("got %+v, %v; want the bad seq %d", r, err, c.bad)
			}
		})
	}
}
