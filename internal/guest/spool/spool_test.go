package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

func open(t *testing.T, dir string, opts Options) *Spool {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func create(t *testing.T, s *Spool, exec id.Exec) *Record {
	t.Helper()
	r, made, err := s.Create(sandbox.ExecSpec{ID: exec, Kind: sandbox.ExecShell, Code: "x"})
	if err != nil || !made {
		t.Fatalf("create %s: %v %v", exec, made, err)
	}
	return r
}

func put(t *testing.T, r *Record, offset int64, data string) {
	t.Helper()
	if err := r.Append(sandbox.Stdout, offset, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, r *Record, offset int64) string {
	t.Helper()
	rd, err := r.Reader(t.Context(), sandbox.Stdout, offset, false)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	data, err := io.ReadAll(rd)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func older(t *testing.T, r *Record, n int) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprint("stdout.", n)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAppendIsIdempotent(t *testing.T) {
	r := create(t, open(t, t.TempDir(), Options{}), "e")
	put(t, r, 0, "hello ")
	put(t, r, 0, "hello ")
	put(t, r, 3, "lo world")
	if got := read(t, r, 0); got != "hello world" || r.stdout.Generation != 0 {
		t.Errorf("%q", got)
	}
	if got := read(t, r, 6); got != "world" {
		t.Errorf("%q", got)
	}
}

func TestSurvivesReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	r := create(t, s, "b")
	put(t, r, 0, "data")
	time.Sleep(time.Millisecond) // the order of records is that of their starts
	create(t, s, "a")
	code := 3
	if err := r.Exit(End{ExitCode: &code, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := os.MkdirAll(filepath.Join(dir, "torn"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "torn", "meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	list := s.List()
	if len(list) != 3 || list[0].ID != "torn" || list[0].State != sandbox.ExecLost || list[1].ID != "b" || list[2].ID != "a" {
		t.Fatalf("%+v", list)
	}
	if list[1].State != sandbox.ExecExited || *list[1].ExitCode != 3 || list[1].StdoutSize != 4 || list[2].State != sandbox.ExecRunning {
		t.Errorf("%+v", list)
	}
	lost, err := s.MarkLost("the plug")
	if err != nil || len(lost) != 1 || lost[0] != "a" {
		t.Errorf("%v %v", lost, err)
	}
	r, err = s.Get("a")
	if st := r.Status(); err != nil || st.State != sandbox.ExecLost || st.Cause != "the plug" || st.ExitCode != nil {
		t.Errorf("%+v", st)
	}
	if err := r.Exit(End{ExitCode: &code}); err != nil || r.Status().State != sandbox.ExecLost {
		t.Error("a lost command got an exit code")
	}
}

// TestL1_LookMakesNothing: who asks about a session that has been deleted must not bring its directory back.
func TestL1_LookMakesNothing(t *testing.T) {
	home := t.TempDir()
	s, err := Look(filepath.Join(home, "session", "spool"), Options{Total: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("e"); errdefs.CodeOf(err) != "exec_not_found" || len(s.List()) != 0 {
		t.Errorf("got %v, %v", s.List(), err)
	}
	if lost, err := s.MarkLost("x"); err != nil || len(lost) != 0 {
		t.Errorf("lost %v, %v", lost, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestFollowersSeeEverything(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	r := create(t, s, "e")
	var wg sync.WaitGroup
	want := strings.Repeat("0123456789", 5000)
	for range 3 {
		wg.Go(func() {
			rd, err := r.Reader(t.Context(), sandbox.Stdout, 0, true)
			if err != nil {
				t.Error(err)
				return
			}
			defer rd.Close()
			if data, err := io.ReadAll(rd); err != nil || string(data) != want {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		})
	}
	for i := 0; i < len(want); i += 100 {
		put(t, r, int64(i), want[i:i+100])
	}
	if err := r.Exit(End{Signal: "SIGKILL"}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	live := create(t, s, "live")
	ctx, cancel := context.WithCancel(t.Context())
	rd, err := live.Reader(ctx, sandbox.Stdout, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(rd); err == nil {
		t.Error("a canceled follower ended well")
	}
}

func TestCapLeavesANote(t *testing.T) {
	r := create(t, open(t, t.TempDir(), Options{Cap: 10}), "e")
	put(t, r, 0, "12345678")
	put(t, r, 8, "90ab")
	put(t, r, 12, "cd")
	if got := read(t, r, 0); !strings.HasPrefix(got, "1234567890\n[perdure: this stream reached 10 bytes") {
		t.Errorf("%q", got)
	}
	if err := r.Resume(sandbox.Stdout, 12, 14); err != nil || r.stdout.Generation != 0 {
		t.Errorf("%v", err)
	}
}

// All commands of a session together have a limit too. Beyond it each still gets a little, so that the session stays usable.
func TestTotalBoundsAllStreams(t *testing.T) {
	dir := t.TempDir()
	opts := Options{Cap: 100, Total: 150, Floor: 10}
	s := open(t, dir, opts)
	put(t, create(t, s, "a"), 0, strings.Repeat("a", 90))
	b := create(t, s, "b")
	put(t, b, 0, strings.Repeat("b", 90))
	if got := read(t, b, 0); !strings.HasPrefix(got, strings.Repeat("b", 60)+"\n[perdure: the output of all commands reached 150 bytes;") {
		t.Errorf("%q", got)
	}
	if err := b.Resume(sandbox.Stdout, 80, 90); err != nil || b.stdout.Generation != 0 {
		t.Errorf("a stream that was cut, after the guest has come back: %v", err)
	}
	put(t, b, 90, "more")
	if got := read(t, b, 0); strings.Contains(got, "more") {
		t.Errorf("%q", got)
	}
	s.Close()
	s = open(t, dir, opts) // what is there counts again
	c := create(t, s, "c")
	put(t, c, 0, "0123456789abc")
	if got := read(t, c, 0); !strings.HasPrefix(got, "0123456789\n[perdure: ") {
		t.Errorf("%q", got)
	}
}

// A record survives a line that a crash or a full disk left half written, and the next change does not join it.
func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	r := create(t, open(t, dir, Options{}), "e")
	r.Started(7, time.Time{}, "")
	r.flush()
	name := filepath.Join(dir, "e", metaFile)
	whole, err := os.ReadFile(name)
	if err != nil || bytes.Count(whole, []byte{'\n'}) != 2 {
		t.Fatalf("%q %v", whole, err)
	}
	for _, tail := range []string{`{"Version":1,"State":"exi`, `{"Version":1}garbage` + strings.Repeat("x", 5000)} {
		if err := os.WriteFile(name, append(bytes.Clone(whole), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := open(t, dir, Options{}).Get("e")
		if err != nil || again.Status().PID != 7 || again.Status().State != sandbox.ExecRunning {
			t.Fatalf("%+v %v", again.Status(), err)
		}
		code := 3
		if err := again.Exit(End{ExitCode: &code}); err != nil {
			t.Fatal(err)
		}
		last, err := open(t, dir, Options{}).Get("e")
		if err != nil || last.Status().PID != 7 || last.Status().ExitCode == nil || *last.Status().ExitCode != 3 {
			t.Errorf("%+v %v", last.Status(), err)
		}
	}
	// A file of an earlier version has one line without an end.
	if err := os.WriteFile(name, bytes.TrimSuffix(whole[:bytes.IndexByte(whole, '\n')+1], []byte{'\n'}), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := open(t, dir, Options{}).Get("e")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Lose("gone"); err != nil {
		t.Fatal(err)
	}
	if again, err := open(t, dir, Options{}).Get("e"); err != nil || again.Status().State != sandbox.ExecLost {
		t.Errorf("%+v %v", again.Status(), err)
	}
}

// The news of a start may come after that of the end, and still counts.
func TestStartAfterTheEnd(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	r := create(t, s, "e")
	code, at := 3, time.Now().Add(-time.Hour)
	if err := r.Exit(End{ExitCode: &code, Cause: "why"}); err != nil {
		t.Fatal(err)
	}
	r.Started(7, at, "it waited")
	s.Close()
	again, err := open(t, dir, Options{}).Get("e")
	if err != nil {
		t.Fatal(err)
	}
	if st := again.Status(); st.PID != 7 || !st.StartedAt.Equal(at) || st.Cause != "why" || *st.ExitCode != 3 || st.State != sandbox.ExecExited {
		t.Errorf("%+v", st)
	}
}

// What happens to a command often, such as gaps that a hostile guest makes, does not let its record grow for ever.
func TestRecordStaysShort(t *testing.T) {
	dir := t.TempDir()
	r := create(t, open(t, dir, Options{}), "e")
	for i := range 200 {
		if err := r.Revive(i); err != nil {
			t.Fatal(err)
		}
		r.meta.Spec.Code = strings.Repeat("x", 5000)
	}
	info, err := os.Stat(filepath.Join(dir, "e", metaFile))
	if err != nil || info.Size() > maxMeta {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if again, err := open(t, dir, Options{}).Get("e"); err != nil || again.Status().PID != 199 {
		t.Errorf("%+v %v", again.Status(), err)
	}
}

func TestGapIsMarked(t *testing.T) {
	r := create(t, open(t, t.TempDir(), Options{}), "e")
	put(t, r, 0, "abc")
	put(t, r, 200_000, "xyz")
	got := read(t, r, 0)
	if len(got) != 200_003 || !strings.HasPrefix(got, "abc\n[perdure: 199997 bytes of output are missing here]\n") ||
		!strings.HasSuffix(got, "\x00xyz") || strings.Count(got, "perdure") != 1 {
		t.Errorf("%d bytes, %q", len(got), got[:80])
	}
	if gaps := r.stdout.Gaps; len(gaps) != 1 || gaps[0] != (Gap{3, 200_000}) {
		t.Errorf("%v", gaps)
	}
	small := create(t, r.spool, "small")
	put(t, small, 2, "z")
	if got := read(t, small, 0); len(got) != 3 || got[2] != 'z' {
		t.Errorf("%q", got)
	}
}

// How long a gap is, a stranger says: it may cost neither the disk nor the time to fill it.
func TestHugeGap(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	r := create(t, s, "e")
	for _, start := range []int64{-1, 8} {
		if err := r.Resume(sandbox.Stdout, start, 7); errdefs.CodeOf(err) != "stream_invalid" {
			t.Errorf("%d of 7: %v", start, err)
		}
	}
	if err := r.Resume(sandbox.Stdout, 1<<62, 1<<62); errdefs.CodeOf(err) != "gap_too_long" {
		t.Errorf("%v", err)
	}
	if err := r.Resume(sandbox.Stdout, 1<<30, 1<<30); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "e", "stdout"), &st); err != nil || st.Size != 1<<30 || st.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
	capped := create(t, open(t, t.TempDir(), Options{Cap: 100}), "e")
	put(t, capped, 0, "abc")
	if err := capped.Resume(sandbox.Stdout, 1<<62, 1<<62); err != nil {
		t.Fatal(err)
	}
	put(t, capped, 1<<62, "more")
	if got := read(t, capped, 0); len(got) > 300 || !strings.Contains(got, "reached 100 bytes") {
		t.Errorf("%q", got)
	}
}

// A guest restored to an earlier time: the longer output is kept aside, the stream goes on from where the guest stands.
func TestGenerations(t *testing.T) {
	dir := t.TempDir()
	r := create(t, open(t, dir, Options{}), "e")
	put(t, r, 0, "common-old timeline")
	if err := r.Resume(sandbox.Stdout, 3, 7); err != nil {
		t.Fatal(err)
	}
	put(t, r, 3, "mon-new")
	if got := read(t, r, 0); got != "common-new" || older(t, r, 1) != "common-old timeline" {
		t.Errorf("%q %q", got, older(t, r, 1))
	}
	// The offsets alone would hide the parting here: the restored guest has written more than the spool has.
	if err := r.Resume(sandbox.Stdout, 5, 30); err != nil {
		t.Fatal(err)
	}
	put(t, r, 5, "n-third timeline")
	if got := read(t, r, 0); got != "common-third timeline" || older(t, r, 2) != "common-new" || r.stdout.Generation != 2 {
		t.Errorf("%q", got)
	}
	r, err := open(t, dir, Options{}).Get("e")
	if err != nil || r.stdout.Generation != 2 || read(t, r, 0) != "common-third timeline" {
		t.Errorf("after reopening: %v", err)
	}
}

func TestForkAndRewind(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	r := create(t, s, "e")
	put(t, r, 0, "12345")
	raw, err := json.Marshal(s.Cut())
	if err != nil {
		t.Fatal(err)
	}
	var cut Cut
	if err := json.Unmarshal(raw, &cut); err != nil {
		t.Fatal(err)
	}
	put(t, r, 5, "-after the cut")
	code := 0
	if err := r.Exit(End{ExitCode: &code}); err != nil {
		t.Fatal(err)
	}
	late := create(t, s, "late")

	fork := func(name string) *Record {
		t.Helper()
		dir := filepath.Join(t.TempDir(), name)
		if err := s.CopyForFork(dir, cut); err != nil {
			t.Fatal(err)
		}
		copied := open(t, dir, Options{})
		if n := len(copied.List()); n != 1 {
			t.Fatalf("%d records", n)
		}
		c, err := copied.Get("e")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := fork("a"); read(t, c, 0) != "12345" || c.Status().State != sandbox.ExecRunning || c.Status().ExitCode != nil {
		t.Errorf("%+v %q", c.Status(), read(t, c, 0))
	}
	// Later rollbacks do not change what the cut means, even if the current stream has other bytes in its place.
	if err := r.Resume(sandbox.Stdout, 2, 3); err != nil {
		t.Fatal(err)
	}
	put(t, r, 3, "other bytes")
	if c := fork("b"); read(t, c, 0) != "12345" {
		t.Errorf("%q", read(t, c, 0))
	}
	if err := s.Rewind(cut); err != nil {
		t.Fatal(err)
	}
	if st := r.Status(); read(t, r, 0) != "12345" || st.State != sandbox.ExecRunning || st.ExitCode != nil {
		t.Errorf("%+v %q", st, read(t, r, 0))
	}
	if older(t, r, 1) != "12345-after the cut" || older(t, r, 2) != "123other bytes" {
		t.Errorf("%q %q", older(t, r, 1), older(t, r, 2))
	}
	if st := late.Status(); st.State != sandbox.ExecLost || !strings.Contains(st.Cause, "rollback") {
		t.Errorf("%+v", st)
	}
	if err := s.Rewind(cut); err != nil || r.stdout.Generation != 2 {
		t.Errorf("rewinding to where it is changed something: %v", err)
	}
}

func TestHostileIDs(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for _, exec := range []id.Exec{"", ".", "..", "../x", "a/b", "a\x00", id.Exec(strings.Repeat("a", 129))} {
		if _, _, err := s.Create(sandbox.ExecSpec{ID: exec}); errdefs.CodeOf(err) != "exec_invalid" {
			t.Errorf("%q: %v", exec, err)
		}
		cut := Cut{Execs: []CutExec{{Status: sandbox.ExecStatus{ID: exec}}}}
		if err := s.CopyForFork(t.TempDir(), cut); errdefs.CodeOf(err) != "spool_cut" {
			t.Errorf("cut %q: %v", exec, err)
		}
	}
}

func TestReaderCrossesARollback(t *testing.T) {
	r := create(t, open(t, t.TempDir(), Options{}), "e")
	put(t, r, 0, "0123456789")
	rd, err := r.Reader(t.Context(), sandbox.Stdout, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	first := make([]byte, 4)
	if _, err := io.ReadFull(rd, first); err != nil {
		t.Fatal(err)
	}
	if err := r.Resume(sandbox.Stdout, 0, 6); err != nil {
		t.Fatal(err)
	}
	put(t, r, 6, "abc")
	rest, err := io.ReadAll(rd)
	if err != nil || !bytes.Equal(rest, []byte("45abc")) {
		t.Errorf("%q %v", rest, err)
	}
}
