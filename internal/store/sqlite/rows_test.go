package sqlite_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite"
)

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if err == nil || errdefs.CodeOf(err) != code {
		t.Errorf("got error %v (code %s), want code %s", err, errdefs.CodeOf(err), code)
	}
}

func add(t testing.TB, log event.Log, sid id.Session, typ event.Type, data any) event.Event {
	t.Helper()
	return eventtest.Append(t, log, event.Append{Session: sid, Expected: event.AnySeq, Events: []event.Draft{{Type: typ, ActorID: "tester", Data: data}}})[0]
}

func checkpoint(t testing.TB, s *sqlite.Store, sid id.Session, message string, layers ...id.Layer) id.Checkpoint {
	t.Helper()
	head, err := s.Head(t.Context(), sid)
	if err != nil {
		t.Fatal(err)
	}
	cid := id.NewCheckpoint()
	add(t, s, sid, event.CheckpointCreated, event.CheckpointCreatedData{
		CheckpointID: cid, Kind: event.KindUser, Message: message, CutSeq: head.Seq, Memory: true, Layers: layers,
		PauseMS: 1.5, MemoryBytes: 10, FileBytes: 20, ManifestHash: "abc",
	})
	return cid
}

func fork(t testing.TB, s *sqlite.Store, name string, of id.Checkpoint) id.Session {
	t.Helper()
	c, err := s.Checkpoint(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	d := eventtest.Created(name)
	data := d.Data.(event.SessionCreatedData)
	data.Fork = &event.ForkOrigin{ParentID: c.SessionID, CheckpointID: c.ID, CutSeq: c.CutSeq}
	d.Data = data
	sid := id.NewSession()
	eventtest.Append(t, s, event.Append{Session: sid, Events: []event.Draft{d}})
	return sid
}

func layers(t testing.TB, s *sqlite.Store) string {
	t.Helper()
	list, err := s.HeldLayers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(list)
}

func verify(t testing.TB, s *sqlite.Store, sid id.Session) {
	t.Helper()
	if r, err := s.Verify(t.Context(), string(sid)); err != nil || !r.OK() {
		t.Errorf("verify: %+v, %v", r, err)
	}
}

func TestSessionsAreListedAndFound(t *testing.T) {
	s := open(t, t.TempDir())
	var ids []id.Session
	for _, name := range []string{"web-1", "web-2", "db", "web%", "sess_like"} {
		ids = append(ids, eventtest.NewSession(t, s, name))
	}
	add(t, s, ids[1], event.TurnStarted, event.TurnStartedData{})
	for _, c := range []struct {
		f    store.Filter
		want []int
		more bool
	}{
		{store.Filter{}, []int{0, 1, 2, 3, 4}, false},
		{store.Filter{NamePrefix: "web"}, []int{0, 1, 3}, false},
		{store.Filter{NamePrefix: "web%"}, []int{3}, false},
		{store.Filter{Status: session.StatusRunning}, []int{1}, false},
		{store.Filter{NamePrefix: "web", Status: session.StatusIdle}, []int{0, 3}, false},
		{store.Filter{Limit: 2}, []int{0, 1}, true},
		{store.Filter{Limit: 2, After: ids[1]}, []int{2, 3}, true},
		{store.Filter{Limit: 2, After: ids[2]}, []int{3, 4}, false},
	} {
		list, more, err := s.Sessions(t.Context(), c.f)
		var got []int
		for _, x := range list {
			got = append(got, slices.Index(ids, x.ID))
		}
		if err != nil || !slices.Equal(got, c.want) || more != c.more {
			t.Errorf("%+v: got %v, %v, %v; want %v, %v", c.f, got, more, err, c.want, c.more)
		}
	}
	for _, ref := range []string{string(ids[2]), "db"} {
		if x, err := s.Session(t.Context(), ref); err != nil || x.ID != ids[2] || x.Name != "db" || x.HeadSeq != 1 {
			t.Errorf("%s: %+v, %v", ref, x, err)
		}
	}
	_, err := s.Session(t.Context(), "nobody")
	wantCode(t, err, event.CodeSessionNotFound)
}

// The row is what the fold says, whatever happens to a session.
func TestRowsFollowTheLog(t *testing.T) {
	s := open(t, t.TempDir())
	sid := eventtest.NewSession(t, s, "rows")
	lease, err := s.Acquire(t.Context(), sid, id.NewLease())
	if err != nil {
		t.Fatal(err)
	}
	c1 := id.NewCheckpoint()
	eventtest.Append(t, s, event.Append{Session: sid, Lease: lease, Expected: 1, Events: []event.Draft{
		{Type: event.WorkspaceStarted, Data: event.WorkspaceStartedData{SandboxID: "sbx_1", Driver: "gvisor", Missing: []string{"network: no TAP"}}},
		eventtest.User("go"),
		{Type: event.TurnStarted, Data: event.TurnStartedData{Messages: []event.Seq{3}}},
		{Type: event.ModelResponded, Data: event.ModelRespondedData{Usage: event.Usage{Input: 5, Output: 6, Cached: 2, CostMicros: 9}}},
		{Type: event.CheckpointCreated, Data: event.CheckpointCreatedData{CheckpointID: c1, Kind: event.KindAgent, Keep: true, CutSeq: 5, Layers: []id.Layer{"l1", "l2"}}},
		{Type: event.CheckpointDurable, Data: event.CheckpointDurableData{CheckpointID: c1}},
	}})
	row, err := s.Session(t.Context(), "rows")
	if err != nil || row.Status != session.StatusRunning || row.OpenTurn != 4 || row.Usage.Input != 5 || row.Workspace.Base != c1 ||
		row.Workspace.State != session.WorkspaceRunning || row.Workspace.SandboxID != "sbx_1" || row.HeadSeq != 7 || row.Lease != lease ||
		!slices.Equal(row.Workspace.Missing, []string{"network: no TAP"}) {
		t.Errorf("row %+v, %v", row, err)
	}
	tr, err := session.Load(t.Context(), s, sid)
	if err != nil || fmt.Sprintf("%+v", tr.State().Summary) != fmt.Sprintf("%+v", row.Summary) {
		t.Errorf("fold %+v, row %+v, %v", tr.State().Summary, row.Summary, err)
	}
	c, err := s.Checkpoint(t.Context(), c1)
	if err != nil || c.State != session.CheckpointDurable || !c.Keep || len(c.Layers) != 2 || c.SessionID != sid {
		t.Errorf("checkpoint %+v, %v", c, err)
	}
	verify(t, s, sid)
}

func TestAForkNamesItsParentsCheckpoints(t *testing.T) {
	s := open(t, t.TempDir())
	sid := eventtest.NewSession(t, s, "parent")
	one := checkpoint(t, s, sid, "one", "a")
	two := checkpoint(t, s, sid, "two", "a", "b")
	child := fork(t, s, "child", two)
	checkpoint(t, s, sid, "two", "a", "b", "c") // after the fork: not the child's past
	late := checkpoint(t, s, sid, "late", "a")
	grandchild := fork(t, s, "grandchild", checkpoint(t, s, child, "mine", "a"))
	own := checkpoint(t, s, grandchild, "one", "a")
	for _, x := range []struct {
		in   id.Session
		ref  string
		want id.Checkpoint
	}{{child, "one", one}, {child, "two", two}, {grandchild, "two", two}, {grandchild, "one", own}, {child, "late", ""}, {sid, "mine", ""}, {sid, "late", late},
		{child, string(one), one}, {child, string(two), two}, {grandchild, string(one), one}, {grandchild, string(own), own},
		{child, string(late), ""}, {grandchild, string(late), ""}, {child, string(own), ""}} {
		c, err := s.CheckpointByRef(t.Context(), x.in, x.ref)
		if x.want == "" {
			wantCode(t, err, store.CodeCheckpointNotFound)
		} else if err != nil || c.ID != x.want {
			t.Errorf("%s in %s: %s, %v; want %s", x.ref, x.in, c.ID, err, x.want)
		}
	}
}

func TestCheckpointsAndTheirLayers(t *testing.T) {
	s := open(t, t.TempDir())
	sid := eventtest.NewSession(t, s, "layers")
	c1 := checkpoint(t, s, sid, "one", "a")
	c2 := checkpoint(t, s, sid, "two", "a", "b")
	c3 := checkpoint(t, s, sid, "two", "a", "b", "c")
	for ref, want := range map[string]id.Checkpoint{"one": c1, "two": c3, string(c2): c2} {
		if c, err := s.CheckpointByRef(t.Context(), sid, ref); err != nil || c.ID != want {
			t.Errorf("%s: %s, %v; want %s", ref, c.ID, err, want)
		}
	}
	for _, ref := range []string{"", "three", string(id.NewCheckpoint())} {
		_, err := s.CheckpointByRef(t.Context(), sid, ref)
		wantCode(t, err, store.CodeCheckpointNotFound)
	}
	child := fork(t, s, "child", c2)
	if c, err := s.CheckpointByRef(t.Context(), child, string(c2)); err != nil || c.ID != c2 {
		t.Errorf("a fork does not find its parent's checkpoint: %v", err)
	}
	_, err := s.CheckpointByRef(t.Context(), eventtest.NewSession(t, s, "stranger"), string(c2))
	wantCode(t, err, store.CodeCheckpointNotFound)

	del := func(c id.Checkpoint) {
		add(t, s, sid, event.CheckpointDeleted, event.CheckpointDeletedData{CheckpointID: c, Reason: "asked"})
	}
	del(c3) // the workspace still stands on its layers
	if got := layers(t, s); got != "[a b c]" {
		t.Errorf("in use: %s", got)
	}
	add(t, s, sid, event.SessionRolledBack, event.SessionRolledBackData{CheckpointID: c1, CutSession: sid, CutSeq: 1})
	if got := layers(t, s); got != "[a b]" {
		t.Errorf("in use after the rollback: %s", got)
	}
	del(c2) // the fork stands on them
	if got := layers(t, s); got != "[a b]" {
		t.Errorf("in use: %s", got)
	}
	add(t, s, sid, event.CheckpointFailed, event.CheckpointFailedData{CheckpointID: c1, Code: "disk_full", Message: "no room"})
	if c, err := s.Checkpoint(t.Context(), c1); err != nil || c.State != session.CheckpointFailed || c.FailCode != "disk_full" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := s.DeleteSession(t.Context(), child); err != nil {
		t.Error(err)
	}
	if got := layers(t, s); got != "[a]" {
		t.Errorf("in use: %s", got)
	}
	_, err = s.Checkpoint(t.Context(), c3)
	wantCode(t, err, store.CodeCheckpointNotFound)
	verify(t, s, sid)
}

// L1: a deleted session leaves nothing, but what its forks read stays until the last of them is gone.
func TestL1_DeletedSessionStaysForItsForksOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	root := eventtest.NewSession(t, s, "root")
	for range 30 { // more events than one step of a purge takes
		eventtest.Append(t, s, event.Append{Session: root, Expected: event.AnySeq, Events: slices.Repeat([]event.Draft{eventtest.User("x")}, 100)})
	}
	unused, used := checkpoint(t, s, root, "unused", "u"), checkpoint(t, s, root, "used", "v")
	child := fork(t, s, "child", used)
	grandchild := fork(t, s, "grandchild", checkpoint(t, s, child, "c", "v", "w"))

	d, err := s.DeleteSession(t.Context(), root)
	if err != nil || !d.Tombstone || len(d.Purged) != 0 || !slices.Equal(d.Checkpoints, []id.Checkpoint{unused}) {
		t.Errorf("root: %+v, %v", d, err)
	}
	_, err = s.Session(t.Context(), string(root))
	wantCode(t, err, event.CodeSessionNotFound)
	_, err = s.DeleteSession(t.Context(), root)
	wantCode(t, err, event.CodeSessionNotFound)
	eventtest.NewSession(t, s, "root") // the name is free
	if tr, err := session.Load(t.Context(), s, grandchild); err != nil || tr.State().View.Events < 3000 {
		t.Errorf("a fork of a fork of a deleted session: %v", err)
	}
	if _, err := s.Checkpoint(t.Context(), used); err != nil {
		t.Errorf("the checkpoint that a fork started from: %v", err)
	}
	again := fork(t, s, "again", used) // of the point that the child started from
	if d, err = s.DeleteSession(t.Context(), child); err != nil || !d.Tombstone || len(d.Checkpoints) != 0 {
		t.Errorf("child: %+v, %v", d, err)
	}
	if tr, err := session.Load(t.Context(), s, again); err != nil || tr.State().View.Events < 3000 {
		t.Errorf("a fork of a deleted session: %v", err)
	}
	if d, err = s.DeleteSession(t.Context(), again); err != nil || d.Tombstone || !slices.Equal(d.Checkpoints, []id.Checkpoint{used}) {
		t.Errorf("again: %+v, %v", d, err)
	}
	created := eventtest.Created("late")
	data := created.Data.(event.SessionCreatedData)
	data.Fork = &event.ForkOrigin{ParentID: root, CheckpointID: used, CutSeq: 1}
	created.Data = data
	_, err = s.Append(t.Context(), event.Append{Session: id.NewSession(), Events: []event.Draft{created}})
	wantCode(t, err, store.CodeCheckpointNotFound)
	d, err = s.DeleteSession(t.Context(), grandchild)
	if err != nil || d.Tombstone || len(d.Purged) != 3 || len(d.Checkpoints) != 1 {
		t.Errorf("grandchild: %+v, %v", d, err)
	}
	for _, sid := range []id.Session{root, child, grandchild} {
		_, err := s.Read(t.Context(), sid, 0, 1)
		wantCode(t, err, event.CodeSessionNotFound)
	}
	if got := layers(t, s); got != "[]" {
		t.Errorf("layers in use: %s", got)
	}
}

func TestIdempotency(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	begin := func(key, hash string) (*store.Answer, error) {
		return s.BeginIdempotent(t.Context(), "POST /x", key, hash)
	}
	if a, err := begin("k", "h"); a != nil || err != nil {
		t.Fatalf("first: %v, %v", a, err)
	}
	_, err := begin("k", "h")
	wantCode(t, err, store.CodeIdempotencyInFlight)
	_, err = begin("k", "other")
	wantCode(t, err, store.CodeIdempotencyMismatch)
	if err := s.FinishIdempotent(t.Context(), "POST /x", "k", store.Answer{Status: 201, Body: []byte(`{"a":1}`)}); err != nil {
		t.Fatal(err)
	}
	if a, err := begin("k", "h"); err != nil || a == nil || a.Status != 201 || string(a.Body) != `{"a":1}` {
		t.Errorf("again: %+v, %v", a, err)
	}
	if a, err := s.BeginIdempotent(t.Context(), "POST /y", "k", "h"); a != nil || err != nil {
		t.Errorf("another scope: %v, %v", a, err)
	}
	if err := s.AbandonIdempotent(t.Context(), "POST /y", "k"); err != nil {
		t.Error(err)
	}
	if a, err := s.BeginIdempotent(t.Context(), "POST /y", "k", "h2"); a != nil || err != nil {
		t.Errorf("after it was abandoned: %v, %v", a, err)
	}
	wantCode(t, s.FinishIdempotent(t.Context(), "POST /z", "k", store.Answer{}), "idempotency_not_begun")
	if n, err := s.ExpireIdempotent(t.Context(), time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("expired %d, %v; the running one stays", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir) // as after a crash: the request of POST /y never ended
	_, err = s.BeginIdempotent(t.Context(), "POST /y", "k", "h2")
	wantCode(t, err, store.CodeIdempotencyUnknown)
}

// Goal: 10,000 sessions that nobody touches cost next to nothing.
func TestIdleSessionsCostNoMemory(t *testing.T) {
	s := open(t, t.TempDir())
	done := make(chan struct{}, 64)
	before := residentKB(t)
	const n = 10_000
	for w := range 50 {
		go func() {
			for i := w; i < n; i += 50 {
				_, err := s.Append(t.Context(), event.Append{Session: id.NewSession(), Events: []event.Draft{eventtest.Created(fmt.Sprint("idle ", i))}})
				if err != nil {
					t.Error(err)
				}
				done <- struct{}{}
			}
		}()
	}
	for range n {
		<-done
	}
	if list, more, err := s.Sessions(t.Context(), store.Filter{Limit: 1000}); len(list) != 1000 || !more || err != nil {
		t.Errorf("%d, %v, %v", len(list), more, err)
	}
	grown := residentKB(t) - before
	t.Logf("%d KB more are resident with %d sessions", grown, n)
	if grown > 100<<10 {
		t.Errorf("%d KB more are resident", grown)
	}
}

func residentKB(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize() >> 10
}
