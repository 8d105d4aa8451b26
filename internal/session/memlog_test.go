package session_test

import (
	"context"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// memLog is a Reader over slices, which is all that this package needs of a log.
type memLog struct {
	t     testing.TB
	logs  map[session.ID][]event.Event
	reads int // events handed out
}

func newMemLog(t testing.TB) *memLog { return &memLog{t: t, logs: map[session.ID][]event.Event{}} }

func (m *memLog) Read(_ context.Context, sid session.ID, after event.Seq, limit int) ([]event.Event, error) {
	log, ok := m.logs[sid]
	if !ok {
		return nil, errdefs.New(errdefs.NotFound, event.CodeSessionNotFound, "no session %s", sid)
	}
	if after >= event.Seq(len(log)) {
		return nil, nil
	}
	log = log[after:min(after+event.Seq(limit), event.Seq(len(log)))]
	m.reads += len(log)
	return log, nil
}

// add appends an event to a log.
func (m *memLog) add(sid session.ID, typ event.Type, data any) event.Event {
	m.t.Helper()
	raw, canonical, err := event.Encode(event.Draft{Type: typ, Data: data})
	if err != nil {
		m.t.Fatal(err)
	}
	log := m.logs[sid]
	prev := ""
	if len(log) > 0 {
		prev = log[len(log)-1].Hash
	}
	e := event.Event{
		ID: id.NewEvent(), Seq: event.Seq(len(log) + 1), Type: typ, SessionID: sid, ActorID: "tester",
		CreatedAt: time.UnixMicro(1_700_000_000_000_000 + int64(len(log))).UTC(), Data: raw,
	}
	e.Hash = event.HashCanonical(prev, e, canonical)
	m.logs[sid] = append(log, e)
	return e
}

func (m *memLog) create(name string, fork *event.ForkOrigin) session.ID {
	sid := id.NewSession()
	m.add(sid, event.SessionCreated, event.SessionCreatedData{
		Name: name, WorkspaceID: "ws_1", Spec: event.Spec{Model: "scripted:x", Image: "host", Driver: "process"}, Fork: fork,
	})
	return sid
}

func (m *memLog) load(sid session.ID) *session.Tracker {
	m.t.Helper()
	t, err := session.Load(m.t.Context(), m, sid)
	if err != nil {
		m.t.Fatalf("load: %v", err)
	}
	return t
}
