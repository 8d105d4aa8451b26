package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store/sqlite"
)

// crashDir, when set, makes this test binary the process that is killed.
const crashDir = "PERDURE_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := appendUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// appendUntilKilled appends to some sessions at once and prints "session seq" for each event that was acknowledged.
func appendUntilKilled(dir string) error {
	ctx := context.Background()
	log, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	ack := func(e event.Event) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%s %d\n", e.SessionID, e.Seq)
	}
	errs := make(chan error)
	for w := range 4 {
		go func() {
			sid := id.NewSession()
			drafts := []event.Draft{eventtest.Created(fmt.Sprint(os.Getpid(), " ", w))}
			for {
				events, err := log.Append(ctx, event.Append{Session: sid, Expected: event.AnySeq, Events: drafts})
				if err != nil {
					errs <- err
					return
				}
				for _, e := range events {
					ack(e)
				}
				drafts = []event.Draft{eventtest.User("one of two"), eventtest.User(strings.Repeat("x", int(events[0].Seq)%5000))}
			}
		}()
	}
	return <-errs
}

// A process that is killed at any moment, again and again on one data directory: each event that it had acknowledged is
// there, no batch is torn, and the chains hold.
func TestH1_H2_KillAtAnyMomentLosesNothing(t *testing.T) {
	dir := t.TempDir()
	acked := map[id.Session]event.Seq{}
	for round := range 8 {
		killOnce(t, dir, acked, 50+rand.IntN(400))
		log, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
		if err != nil {
			t.Fatalf("round %d: open after a kill: %v", round, err)
		}
		for sid, seq := range acked {
			r, err := log.Verify(t.Context(), string(sid))
			if err != nil || !r.OK() {
				t.Fatalf("round %d: verify %s: %+v, %v", round, sid, r, err)
			}
			if r.Head.Seq < seq {
				t.Fatalf("round %d: %s ends at %d, but %d was acknowledged", round, sid, r.Head.Seq, seq)
			}
			if r.Head.Seq%2 != 1 {
				t.Fatalf("round %d: %s ends at %d: half of a batch was stored", round, sid, r.Head.Seq)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acked) == 0 {
		t.Fatal("nothing was appended")
	}
}

// killOnce starts a process, kills it after n acknowledgements and a random moment, and notes what it had acknowledged.
func killOnce(t *testing.T, dir string, acked map[id.Session]event.Seq, n int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var killer *time.Timer
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		var sid id.Session
		var seq event.Seq
		if _, err := fmt.Sscanf(lines.Text(), "%s %d", &sid, &seq); err != nil {
			continue // the last line, cut by the kill
		}
		acked[sid] = max(acked[sid], seq)
		if i == n {
			killer = time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait() // killed, which is the point
	if killer == nil {
		t.Fatal("the process ended by itself")
	}
	killer.Stop()
}
