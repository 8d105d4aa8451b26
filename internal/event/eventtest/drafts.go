package eventtest

import (
	"context"
	"testing"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// Created returns a draft of session.created.
func Created(name string) event.Draft {
	return event.Draft{Type: event.SessionCreated, ActorID: "tester", Data: event.SessionCreatedData{
		Name: name, WorkspaceID: id.NewWorkspace(), Spec: event.Spec{Model: "scripted:none", Image: "host", Driver: "process"},
	}}
}

// User returns a draft of message.user.
func User(text string) event.Draft {
	return event.Draft{Type: event.MessageUser, ActorID: "tester", Data: event.MessageUserData{Text: text, Delivery: event.Queue}}
}

// NewSession creates a session in log and returns its id. Nobody holds its lease, so appends carry generation 0.
func NewSession(t testing.TB, log event.Log, name string) id.Session {
	t.Helper()
	sid := id.NewSession()
	Append(t, log, event.Append{Session: sid, Events: []event.Draft{Created(name)}})
	return sid
}

// Append appends or fails the test.
func Append(t testing.TB, log event.Log, a event.Append) []event.Event {
	t.Helper()
	events, err := log.Append(t.Context(), a)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return events
}

// All reads a whole log, or fails the test.
func All(t testing.TB, log event.Log, sid id.Session) []event.Event {
	t.Helper()
	var all []event.Event
	for {
		events := read(t, t.Context(), log, sid, event.Seq(len(all)))
		if all = append(all, events...); len(events) == 0 {
			return all
		}
	}
}

func read(t testing.TB, ctx context.Context, log event.Log, sid id.Session, after event.Seq) []event.Event {
	t.Helper()
	events, err := log.Read(ctx, sid, after, 100)
	if err != nil {
		t.Fatalf("read after %d: %v", after, err)
	}
	return events
}
