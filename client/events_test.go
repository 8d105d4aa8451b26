package client_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server/servertest"
)

// proxy passes bytes on to a socket, and breaks each connection after some of them have come back.
func proxy(t *testing.T, to string, budget func() int64) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(to), "proxy.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer in.Close()
				out, err := net.Dial("unix", to)
				if err != nil {
					return
				}
				defer out.Close()
				conns.Go(func() {
					_, _ = io.Copy(out, in) // ends when either side closes
					out.Close()
				})
				_, _ = io.CopyN(in, out, budget()) // cut in the middle of whatever comes
			})
		}
	})
	return path
}

func TestE1_ReconnectingNeitherLosesNorRepeats(t *testing.T) {
	d := servertest.NewDaemon(t)
	session(t, connect(t, d), "s")
	const total = 400
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	cuts := 0
	path := proxy(t, d.Socket, func() int64 {
		mu.Lock()
		defer mu.Unlock()
		cuts++
		return rnd.Int64N(6000)
	})
	c, err := client.New(client.Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		for i := range total - 1 {
			if i%3 == 0 {
				if err := d.Backend.Delta("s", "piece"); err != nil {
					t.Error(err)
				}
			}
			if _, err := d.Backend.Append("s", "message.agent", map[string]any{"text": fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		}
	}()
	next := uint64(1)
	for item, err := range c.Events(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Event == nil {
			continue
		}
		if item.Event.Seq != next {
			t.Fatalf("got event %d, want %d", item.Event.Seq, next)
		}
		if next == total {
			break
		}
		next++
	}
	mu.Lock()
	defer mu.Unlock()
	if cuts < 5 {
		t.Errorf("the proxy cut only %d connections: the test shows nothing", cuts)
	}
}

func TestE1_EventsAcrossRestarts(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	next := uint64(1)
	for item, err := range c.Events(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Event == nil {
			continue
		}
		if item.Event.Seq != next {
			t.Fatalf("got event %d, want %d", item.Event.Seq, next)
		}
		next++
		switch {
		case next == 10:
			return
		case next%2 == 0:
			d.Kill()
		default:
			d.Stop(t)
		}
		if _, err := d.Backend.Append("s", "message.agent", map[string]any{}); err != nil {
			t.Fatal(err)
		}
		d.Start(t)
	}
}

func TestEventsEnd(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	last := func(ctx context.Context, name string, after uint64) (n int, err error) {
		for item, e := range c.Events(ctx, name, after) {
			if e != nil {
				return n, e
			}
			if item.Event != nil {
				n++
				if name == "s" {
					if err := c.DeleteSession(t.Context(), "s"); err != nil {
						t.Error(err)
					}
				}
			}
		}
		return n, nil
	}
	if _, err := last(t.Context(), "nobody", 0); errdefs.CodeOf(err) != "session_not_found" {
		t.Errorf("unknown session: %v", err)
	}
	if _, err := last(t.Context(), "s", 7); errdefs.CodeOf(err) != "unknown_cursor" {
		t.Errorf("unknown cursor: %v", err)
	}
	if n, err := last(t.Context(), "s", 0); n != 1 || errdefs.CodeOf(err) != "session_not_found" {
		t.Errorf("a deleted session: %d events, then %v", n, err)
	}
	session(t, c, "quiet")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := last(ctx, "quiet", 0); n != 0 || err != nil {
		t.Errorf("an ended context: %d events, %v", n, err)
	}
}

func TestListEventsPages(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	for range 4 {
		if _, err := c.SendMessages(t.Context(), "s", api.SendMessages{Messages: []api.Message{{Text: "x"}}}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := c.ListEvents(t.Context(), "s", 1, 2)
	if err != nil || len(l.Data) != 2 || !l.HasMore || l.Data[0].Seq != 2 {
		t.Errorf("ListEvents = %+v, %v", l, err)
	}
	seq := uint64(1)
	_, err = c.SendMessages(t.Context(), "s", api.SendMessages{Messages: []api.Message{{Text: "x"}}, ExpectedLastSeq: &seq})
	if errdefs.CodeOf(err) != "seq_conflict" {
		t.Errorf("stale expected_last_seq: %v", err)
	}
}
