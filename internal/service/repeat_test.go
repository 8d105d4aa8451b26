package service_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/sandbox/process"
)

// keyed is the context of a request with an idempotency key.
func (w *world) keyed(key string) context.Context {
	who := actor.Local()
	who.Request = key
	return actor.With(context.WithoutCancel(w.t.Context()), who)
}

// TestH4_KeyedRequestIsRecognisedAfterACrash makes each request, lets the daemon die before its answer is stored, and makes it again.
func TestH4_KeyedRequestIsRecognisedAfterACrash(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.dir, "script.yaml")
	if err := os.WriteFile(file, []byte("turns:\n  - {text: done}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	model := "scripted:" + file
	made, err := w.svc.CreateSession(w.keyed("create"), api.CreateSession{Name: "a", Driver: process.Name, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	first, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{Message: "first"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		once event.Type // is in the log once
		do   func(ctx context.Context) (any, error)
	}{
		{"create", event.SessionCreated, func(ctx context.Context) (any, error) {
			s, err := w.svc.CreateSession(ctx, api.CreateSession{Name: "a", Driver: process.Name, Model: model})
			return s.ID, err
		}},
		{"checkpoint", "", func(ctx context.Context) (any, error) {
			c, err := w.svc.CreateCheckpoint(ctx, "a", api.CreateCheckpoint{Message: "again"})
			return c.ID, err
		}},
		{"fork", event.SessionForked, func(ctx context.Context) (any, error) {
			list, err := w.svc.ForkSession(ctx, "a", api.ForkSession{Count: 2, Name: "kid"})
			ids := []string{}
			for _, s := range list.Data {
				ids = append(ids, s.ID)
			}
			return ids, err
		}},
		{"send", event.MessageUser, func(ctx context.Context) (any, error) {
			return w.svc.SendMessages(ctx, "a", api.SendMessages{Messages: []api.Message{{Text: "one"}}})
		}},
		{"rollback", event.SessionRolledBack, func(ctx context.Context) (any, error) {
			if _, err := w.svc.WaitSession(ctx, "a", []string{api.WaitDone}); err != nil {
				return nil, err
			}
			return w.svc.RollbackSession(ctx, "a", api.RollbackSession{Checkpoint: first.ID})
		}},
	} {
		want, err := c.do(w.keyed(c.key))
		if err != nil {
			t.Fatalf("%s: %v", c.key, err)
		}
		w.restart()
		got, err := c.do(w.keyed(c.key))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s again: %+v, %v; the first answer was %+v", c.key, got, err, want)
		}
		if n := w.count(made.ID, c.once); c.once != "" && n != 1 {
			t.Errorf("%s: the log has %s %d times", c.key, c.once, n)
		}
	}
	// The key of another request stands for nothing here.
	if _, err := w.svc.SendMessages(w.keyed("create"), "a", api.SendMessages{Messages: []api.Message{{Text: "two"}}}); err != nil {
		t.Error(err)
	}
}

func (w *world) count(ref string, what event.Type) int {
	w.t.Helper()
	list, err := w.svc.ListEvents(w.ctx(), ref, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, e := range list.Data {
		if e.Type == string(what) {
			n++
		}
	}
	return n
}
