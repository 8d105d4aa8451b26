package eventtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// Harness opens an implementation for a test.
type Harness struct {
	// Open returns an empty log, which it closes when the test ends.
	Open func(t *testing.T) event.Log
	// Delete deletes a session.
	Delete func(t *testing.T, log event.Log, sid id.Session)
}

// Run holds an implementation against what event.Log promises.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"seqs have no gaps and hashes chain", testChain},
		{"events come back as they were", testRoundTrip},
		{"a batch is stored whole or not at all", testAtomic},
		{"an expected seq that is not the head is refused", testExpected},
		{"one of many appends for one expected seq wins", testRace},
		{"a stale lease is refused", testLease},
		{"what is not valid is refused", testInvalid},
		{"a name is taken once", testName},
		{"a session that does not exist is not found", testNotFound},
		{"read pages through a log", testRead},
		{"a subscription has no gap and no double", testSubscribe},
		{"a subscription begins at its cursor", testCursor},
		{"a subscription ends with its context and with its session", testEnd},
		{"a slow subscriber loses nothing and stops nobody", testSlow},
		{"an append whose context has ended stores nothing", testCanceled},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
}

// patience bounds the waits of these tests. It is never reached when the log works.
const patience = 30 * time.Second

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if errdefs.CodeOf(err) != code || err == nil {
		t.Errorf("got error %v (code %s), want code %s", err, errdefs.CodeOf(err), code)
	}
}

func testChain(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "chain")
	for i := range 5 {
		Append(t, log, event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{User("a"), User(fmt.Sprint(i))}})
	}
	all := All(t, log, sid)
	if len(all) != 11 {
		t.Fatalf("got %d events, want 11", len(all))
	}
	prev := ""
	for i, e := range all {
		if e.Seq != event.Seq(i+1) {
			t.Errorf("event %d has seq %d", i+1, e.Seq)
		}
		hash, err := event.Hash(prev, e)
		if err != nil || hash != e.Hash {
			t.Errorf("event %d: hash %s, want %s (%v)", e.Seq, e.Hash, hash, err)
		}
		prev = e.Hash
	}
	head, err := log.Head(t.Context(), sid)
	if err != nil || head != (event.Head{Seq: 11, Hash: prev}) {
		t.Errorf("head %+v, %v", head, err)
	}
}

func testRoundTrip(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "round trip")
	raw := json.RawMessage(`{"call_id":"c","name":"run","arguments":{"n":12345678901234567890,"f":1.50,"s":"<&>\u2028é\u0000"}}`)
	draft := event.Draft{ID: id.NewEvent(), Type: event.ToolRequested, ActorID: "who", CausationID: id.NewEvent(), Data: raw}
	got := Append(t, log, event.Append{Session: sid, Expected: 1, Events: []event.Draft{draft}})[0]
	read := All(t, log, sid)[1]
	for _, e := range []event.Event{got, read} {
		if e.ID != draft.ID || e.Type != draft.Type || e.ActorID != draft.ActorID || e.CausationID != draft.CausationID ||
			e.SessionID != sid || string(e.Data) != string(raw) || e.Hash != got.Hash || !e.CreatedAt.Equal(got.CreatedAt) {
			t.Errorf("got %+v (data %s), want %+v", e, e.Data, draft)
		}
		if e.CreatedAt.Location() != time.UTC || e.CreatedAt.Nanosecond()%1000 != 0 || e.CreatedAt.IsZero() {
			t.Errorf("created_at %v is not UTC in microseconds", e.CreatedAt)
		}
	}
}

func testAtomic(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "atomic")
	used := id.NewEvent()
	first := User("first")
	first.ID = used
	Append(t, log, event.Append{Session: sid, Expected: 1, Events: []event.Draft{first}})
	again := User("same id")
	again.ID = used
	for name, bad := range map[string]event.Draft{"id in use": again, "second birth": Created("other")} {
		_, err := log.Append(t.Context(), event.Append{Session: sid, Expected: 2, Events: []event.Draft{User("good"), bad}})
		wantCode(t, err, event.CodeInvalid)
		if head, _ := log.Head(t.Context(), sid); head.Seq != 2 {
			t.Errorf("%s: the head is at %d, want 2", name, head.Seq)
		}
	}
	_, err := log.Append(t.Context(), event.Append{Session: id.NewSession(), Events: []event.Draft{Created("half"), again}})
	wantCode(t, err, event.CodeInvalid)
	NewSession(t, log, "half") // the name is still free
}

func testExpected(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "expected")
	for _, wrong := range []event.Seq{0, 2, 100} {
		_, err := log.Append(t.Context(), event.Append{Session: sid, Expected: wrong, Events: []event.Draft{User("no")}})
		wantCode(t, err, event.CodeSeqConflict)
	}
	_, err := log.Append(t.Context(), event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{Created("again")}})
	wantCode(t, err, event.CodeSeqConflict)
	Append(t, log, event.Append{Session: sid, Expected: 1, Events: []event.Draft{User("yes")}})
}

func testRace(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "race")
	const n = 20
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, errs[i] = log.Append(t.Context(), event.Append{Session: sid, Expected: 1, Events: []event.Draft{User(fmt.Sprint(i))}})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		wantCode(t, err, event.CodeSeqConflict)
	}
	if head, _ := log.Head(t.Context(), sid); won != 1 || head.Seq != 2 {
		t.Errorf("%d appends won and the head is at %d; want 1 and 2", won, head.Seq)
	}
}

func testLease(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "lease")
	one, two := id.NewLease(), id.NewLease()
	acquire := func(owner id.Lease) event.Generation {
		g, err := log.Acquire(t.Context(), sid, owner)
		if err != nil {
			t.Fatalf("acquire: %v", err)
		}
		return g
	}
	g1 := acquire(one)
	if again := acquire(one); g1 == 0 || again != g1 {
		t.Errorf("the same owner got generation %d, then %d", g1, again)
	}
	Append(t, log, event.Append{Session: sid, Lease: g1, Expected: 1, Events: []event.Draft{User("one")}})
	g2 := acquire(two)
	if g2 <= g1 {
		t.Errorf("a later holder has generation %d after %d", g2, g1)
	}
	for _, stale := range []event.Generation{0, g1, g2 + 1} {
		_, err := log.Append(t.Context(), event.Append{Session: sid, Lease: stale, Expected: 2, Events: []event.Draft{User("stale")}})
		wantCode(t, err, event.CodeStaleLease)
	}
	Append(t, log, event.Append{Session: sid, Lease: g2, Expected: 2, Events: []event.Draft{User("two")}})
}

func testInvalid(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "invalid")
	for name, d := range map[string]event.Draft{
		"unknown type":   {Type: "session.exploded", Data: event.MessageUserData{}},
		"other payload":  {Type: event.MessageUser, Data: event.TurnStartedData{}},
		"no payload":     {Type: event.MessageUser},
		"nil payload":    {Type: event.MessageUser, Data: (*event.MessageUserData)(nil)},
		"not an object":  {Type: event.MessageUser, Data: json.RawMessage(`"text"`)},
		"broken JSON":    {Type: event.MessageUser, Data: json.RawMessage(`{"text":`)},
		"null":           {Type: event.MessageUser, Data: json.RawMessage(`null`)},
		"member twice":   {Type: event.MessageUser, Data: json.RawMessage(`{"text":"a","text":"b"}`)},
		"wrong shape":    {Type: event.MessageUser, Data: json.RawMessage(`{"text":7}`)},
		"no such number": {Type: event.ToolRequested, Data: event.ToolRequestedData{ToolCall: event.ToolCall{Arguments: json.RawMessage(`1e999`)}}},
		"too large":      {Type: event.MessageUser, Data: event.MessageUserData{Text: string(make([]byte, event.MaxDataBytes/2))}},
		"wrong id":       {ID: "evt_1", Type: event.MessageUser, Data: event.MessageUserData{}},
	} {
		_, err := log.Append(t.Context(), event.Append{Session: sid, Expected: 1, Events: []event.Draft{d}})
		if errdefs.CodeOf(err) != event.CodeInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := log.Append(t.Context(), event.Append{Session: sid, Expected: 1})
	wantCode(t, err, event.CodeInvalid)
	_, err = log.Append(t.Context(), event.Append{Session: "../etc", Events: []event.Draft{Created("x")}})
	wantCode(t, err, event.CodeInvalid)
	for _, cut := range []event.Seq{0, 2, 9} {
		_, err = log.Append(t.Context(), event.Append{Session: sid, Expected: 1, Events: []event.Draft{
			{Type: event.SessionRolledBack, Data: event.SessionRolledBackData{CutSession: sid, CutSeq: cut}},
		}})
		wantCode(t, err, event.CodeInvalid)
	}
	if head, _ := log.Head(t.Context(), sid); head.Seq != 1 {
		t.Errorf("the head is at %d, want 1", head.Seq)
	}
}

func testName(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "taken")
	_, err := log.Append(t.Context(), event.Append{Session: id.NewSession(), Events: []event.Draft{Created("taken")}})
	wantCode(t, err, event.CodeNameTaken)
	h.Delete(t, log, sid)
	NewSession(t, log, "taken")
}

func testNotFound(t *testing.T, h Harness) {
	log := h.Open(t)
	gone := NewSession(t, log, "gone")
	h.Delete(t, log, gone)
	for _, sid := range []id.Session{id.NewSession(), gone} {
		_, err := log.Append(t.Context(), event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{User("x")}})
		wantCode(t, err, event.CodeSessionNotFound)
		_, err = log.Read(t.Context(), sid, 0, 10)
		wantCode(t, err, event.CodeSessionNotFound)
		_, err = log.Head(t.Context(), sid)
		wantCode(t, err, event.CodeSessionNotFound)
		_, err = log.Acquire(t.Context(), sid, id.NewLease())
		wantCode(t, err, event.CodeSessionNotFound)
		_, err = collect(t.Context(), log, sid, 0, 1)
		wantCode(t, err, event.CodeSessionNotFound)
	}
}

func testRead(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "read")
	for range 24 {
		Append(t, log, event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{User("x")}})
	}
	for _, c := range []struct {
		after event.Seq
		limit int
		want  int
	}{{0, 10, 10}, {10, 10, 10}, {20, 10, 5}, {25, 10, 0}, {99, 10, 0}, {0, 25, 25}, {24, 1, 1}} {
		events, err := log.Read(t.Context(), sid, c.after, c.limit)
		if err != nil || len(events) != c.want || c.want > 0 && events[0].Seq != c.after+1 {
			t.Errorf("read after %d, limit %d: %d events, %v", c.after, c.limit, len(events), err)
		}
	}
}

// collect subscribes and returns the first n events.
func collect(ctx context.Context, log event.Log, sid id.Session, after event.Seq, n int) ([]event.Event, error) {
	var got []event.Event
	for e, err := range log.Subscribe(ctx, sid, after) {
		if err != nil {
			return got, err
		}
		if got = append(got, e); len(got) == n {
			return got, nil
		}
	}
	return got, ctx.Err()
}

func testSubscribe(t *testing.T, h Harness) {
	log := h.Open(t)
	const appenders, each, before = 4, 40, 30
	sid := NewSession(t, log, "subscribe")
	other := NewSession(t, log, "other")
	for range before - 1 {
		Append(t, log, event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{User("stored")}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const total = before + appenders*each
	var readers, writers sync.WaitGroup
	results := make([][]event.Event, 6)
	errs := make([]error, len(results)+appenders)
	for i := range results {
		after := event.Seq(i * 5)
		readers.Go(func() { results[i], errs[i] = collect(ctx, log, sid, after, total-int(after)) })
	}
	for w := range appenders {
		writers.Go(func() {
			for range each {
				for _, to := range []id.Session{sid, other} {
					if _, err := log.Append(ctx, event.Append{Session: to, Expected: event.AnySeq, Events: []event.Draft{User("live")}}); err != nil {
						errs[len(results)+w] = err
					}
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, got := range results {
		for j, e := range got {
			if want := event.Seq(i*5 + j + 1); e.Seq != want || e.SessionID != sid {
				t.Fatalf("subscriber %d got %d of %s, want %d", i, e.Seq, e.SessionID, want)
			}
		}
	}
}

func testCursor(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "cursor")
	Append(t, log, event.Append{Session: sid, Expected: 1, Events: []event.Draft{User("two"), User("three")}})
	got, err := collect(t.Context(), log, sid, 2, 1)
	if err != nil || len(got) != 1 || got[0].Seq != 3 {
		t.Errorf("after 2: %v, %v", got, err)
	}
	for _, after := range []event.Seq{4, ^event.Seq(0)} {
		_, err = collect(t.Context(), log, sid, after, 1)
		wantCode(t, err, event.CodeUnknownCursor)
	}
}

func testEnd(t *testing.T, h Harness) {
	log := h.Open(t)
	for name, end := range map[string]func(sid id.Session, cancel context.CancelFunc){
		"canceled": func(_ id.Session, cancel context.CancelFunc) { cancel() },
		"deleted":  func(sid id.Session, _ context.CancelFunc) { h.Delete(t, log, sid) },
	} {
		t.Run(name, func(t *testing.T) {
			sid := NewSession(t, log, "end by being "+name)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			live, over := make(chan struct{}), make(chan error, 1)
			go func() {
				var last error
				for _, err := range log.Subscribe(ctx, sid, 0) {
					if last = err; err == nil {
						close(live)
					}
				}
				over <- last
			}()
			select {
			case <-live:
			case err := <-over:
				t.Fatalf("it ended before its first event: %v", err)
			}
			end(sid, cancel)
			if err := <-over; err != nil {
				t.Errorf("it ended with %v", err)
			}
			if name == "deleted" && ctx.Err() != nil {
				t.Error("it did not end when the session was deleted")
			}
		})
	}
}

func testSlow(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "slow")
	const n = 700
	next := event.Seq(0)
	for e, err := range log.Subscribe(t.Context(), sid, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if next++; e.Seq != next {
			t.Fatalf("got %d, want %d", e.Seq, next)
		}
		if next == 1 {
			for range n / 10 { // all while the subscriber does not read
				batch := make([]event.Draft, 10)
				for i := range batch {
					batch[i] = User("x")
				}
				Append(t, log, event.Append{Session: sid, Expected: event.AnySeq, Events: batch})
			}
		}
		if next == n+1 {
			return
		}
	}
	t.Error("the subscription ended by itself")
}

func testCanceled(t *testing.T, h Harness) {
	log := h.Open(t)
	sid := NewSession(t, log, "canceled")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := log.Append(ctx, event.Append{Session: sid, Expected: 1, Events: []event.Draft{User("late")}})
	head, herr := log.Head(t.Context(), sid)
	if herr != nil || (err == nil) != (head.Seq == 2) {
		t.Errorf("append returned %v and the head is at %d (%v)", err, head.Seq, herr)
	}
}
