// Package modeltest is the conformance suite of model providers that speak HTTP: it serves a scene over a provider's own wire
// protocol and checks what Chat makes of it.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

// Call is a tool call, with its arguments in the pieces in which they arrive.
type Call struct {
	ID, Name string
	Parts    []string
}

// Stop says how the answer of a scene ends.
type Stop string

// The ways to end.
const (
	StopEnd    Stop = "end"
	StopTools  Stop = "tools"
	StopLength Stop = "length"
	StopNone   Stop = "none" // the stream just ends, in good order
)

// Scene is one streamed answer.
type Scene struct {
	Text  []string
	Calls []Call
	Stop  Stop
	Usage event.Usage
	Abort bool          // the connection breaks before the end
	Hang  chan struct{} // the server stalls before the end until it is closed
}

// Wire is a provider and its protocol.
type Wire struct {
	New func(t *testing.T, baseURL string) model.Provider
	// Stream writes a scene up to, but without, its end; End writes that.
	Stream func(w io.Writer, s Scene)
	End    func(w io.Writer, s Scene)
	// ErrorBody is the body of an error answer.
	ErrorBody func(kind, message string) string
	// TooLong is the provider's way to say that a request does not fit.
	TooLong string
	// CheckRequest checks the body of a request that carries Conversation.
	CheckRequest func(t *testing.T, body []byte)
}

// Conversation is what the suite sends: every kind of message, a cut call among them.
func Conversation() model.Request {
	return model.Request{
		Tools: []model.ToolSpec{{Name: "run", Description: "d", Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`)}},
		Messages: []model.Message{
			{Role: model.System, Text: "sys"}, {Role: model.User, Text: "hi"},
			{Role: model.Assistant, Text: "let me", ToolCalls: []event.ToolCall{
				{CallID: "c1", Name: "run", Arguments: json.RawMessage(`{"command":"ls"}`)},
				{CallID: "c2", Name: "run", Arguments: json.RawMessage(`"{\"comm"`), Cut: true},
			}},
			{Role: model.Tool, CallID: "c1", Text: "files"}, {Role: model.Tool, CallID: "c2", Text: "not run", Error: true},
			{Role: model.User, Text: "go on"},
		},
	}
}

// Run runs the suite.
func Run(t *testing.T, w Wire) {
	ask := func(t *testing.T, s Scene) (model.Response, []model.Delta, error) {
		return w.ask(t, t.Context(), s)
	}
	t.Run("text and usage", func(t *testing.T) {
		usage := event.Usage{Input: 100, Output: 7, Cached: 60}
		r, deltas, err := ask(t, Scene{Text: []string{"Hel", "lo ", "wörld"}, Stop: StopEnd, Usage: usage})
		if err != nil || r.Text != "Hello wörld" || r.Stop != model.StopEnd || r.Usage != usage || len(deltas) != 3 {
			t.Errorf("%+v %v %v", r, deltas, err)
		}
	})
	t.Run("split tool calls", func(t *testing.T) {
		r, _, err := ask(t, Scene{Text: []string{"look"}, Stop: StopTools, Calls: []Call{
			{ID: "a", Name: "run", Parts: []string{`{"com`, `mand":"l`, `s"}`}}, {ID: "b", Name: "list", Parts: nil},
		}})
		if err != nil || len(r.ToolCalls) != 2 || r.Stop != model.StopTools {
			t.Fatalf("%+v %v", r, err)
		}
		if c := r.ToolCalls[0]; c.CallID != "a" || c.Cut || string(c.Arguments) != `{"command":"ls"}` {
			t.Errorf("%+v", c)
		}
		if c := r.ToolCalls[1]; c.Name != "list" || c.Cut || string(c.Arguments) != `{}` {
			t.Errorf("%+v", c)
		}
	})
	t.Run("H3 cut calls", func(t *testing.T) {
		for name, s := range map[string]Scene{
			"length":    {Stop: StopLength, Calls: []Call{{ID: "a", Name: "run", Parts: []string{`{"command":"rm -r`}}}},
			"no end":    {Stop: StopNone, Calls: []Call{{ID: "a", Name: "run", Parts: []string{`{"command":"rm -r`}}}},
			"not JSON":  {Stop: StopTools, Calls: []Call{{ID: "a", Name: "run", Parts: []string{`{"command":"a"`, `,,}`}}}},
			"no object": {Stop: StopTools, Calls: []Call{{ID: "a", Name: "run", Parts: []string{`["ls"]`}}}},
		} {
			r, _, err := ask(t, s)
			if err != nil || len(r.ToolCalls) != 1 || !r.ToolCalls[0].Cut {
				t.Errorf("%s: %+v %v", name, r, err)
				continue
			}
			var arrived string
			if json.Unmarshal(r.ToolCalls[0].Arguments, &arrived) != nil || arrived == "" {
				t.Errorf("%s: arguments %s", name, r.ToolCalls[0].Arguments)
			}
		}
	})
	t.Run("same ids", func(t *testing.T) {
		r, _, err := ask(t, Scene{Stop: StopTools, Calls: []Call{{ID: "a", Name: "x", Parts: []string{`{"n":1}`}}, {ID: "a", Name: "x", Parts: []string{`{"n":2}`}}}})
		if err != nil || len(r.ToolCalls) > 1 && r.ToolCalls[0].CallID == r.ToolCalls[1].CallID {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("cut streams", func(t *testing.T) {
		for _, s := range []Scene{{Text: []string{"Hel"}, Abort: true}, {Text: []string{"Hel"}, Stop: StopNone}} {
			_, _, err := ask(t, s)
			wantClass(t, err, model.Network)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		hang := make(chan struct{})
		defer close(hang)
		why := errors.New("because")
		_, _, err := w.askWith(t, ctx, Scene{Text: []string{"Hel"}, Hang: hang}, func(model.Delta) { cancel(why) })
		wantClass(t, err, model.Canceled)
		if !errors.Is(err, why) {
			t.Errorf("the cause is not in %v", err)
		}
	})
	t.Run("errors", func(t *testing.T) { w.testErrors(t) })
	t.Run("request", func(t *testing.T) {
		var body []byte
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, _ = io.ReadAll(r.Body)
			rw.Header().Set("Content-Type", "text/event-stream")
			end := Scene{Text: []string{"ok"}, Stop: StopEnd}
			w.Stream(rw, end)
			w.End(rw, end)
		}))
		defer s.Close()
		if _, err := w.New(t, s.URL).Chat(t.Context(), Conversation(), nil); err != nil {
			t.Fatal(err)
		}
		w.CheckRequest(t, body)
	})
}

func (w Wire) ask(t *testing.T, ctx context.Context, s Scene) (model.Response, []model.Delta, error) {
	return w.askWith(t, ctx, s, nil)
}

func (w Wire) askWith(t *testing.T, ctx context.Context, s Scene, sink model.Sink) (model.Response, []model.Delta, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		w.Stream(rw, s)
		rw.(http.Flusher).Flush()
		if s.Hang != nil {
			select {
			case <-s.Hang:
			case <-r.Context().Done():
			}
			return
		}
		if s.Abort {
			panic(http.ErrAbortHandler)
		}
		if s.Stop != StopNone {
			w.End(rw, s)
		}
	}))
	defer server.Close()
	var deltas []model.Delta
	r, err := w.New(t, server.URL).Chat(ctx, Conversation(), func(d model.Delta) {
		deltas = append(deltas, d)
		sink.Send(d)
	})
	return r, deltas, err
}

func (w Wire) testErrors(t *testing.T) {
	for _, tt := range []struct {
		status        int
		kind, message string
		after         string
		class         model.Class
	}{
		{429, "rate_limit_error", "slow down", "7", model.RateLimited},
		{500, "api_error", "oops", "", model.Overloaded},
		{529, "overloaded_error", "busy", "3", model.Overloaded},
		{401, "authentication_error", "bad key", "", model.Auth},
		{403, "permission_error", "no", "", model.Auth},
		{400, "invalid_request_error", "bad thing", "", model.BadRequest},
		{400, "invalid_request_error", w.TooLong, "", model.ContextTooLong},
	} {
		var calls atomic.Int32
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			rw.Header().Set("Content-Type", "application/json")
			if tt.after != "" {
				rw.Header().Set("Retry-After", tt.after)
			}
			rw.WriteHeader(tt.status)
			_, _ = io.WriteString(rw, w.ErrorBody(tt.kind, tt.message))
		}))
		_, err := w.New(t, s.URL).Chat(t.Context(), Conversation(), nil)
		s.Close()
		wantClass(t, err, tt.class)
		var e *model.Error
		if errors.As(err, &e) && tt.after != "" && e.RetryAfter != time.Duration(tt.after[0]-'0')*time.Second {
			t.Errorf("%d: retry after %s", tt.status, e.RetryAfter)
		}
		if calls.Load() != 1 {
			t.Errorf("%d: asked %d times", tt.status, calls.Load())
		}
	}
	s := httptest.NewServer(nil)
	s.Close() // nobody listens
	_, err := w.New(t, s.URL).Chat(t.Context(), Conversation(), nil)
	wantClass(t, err, model.Network)
}

func wantClass(t *testing.T, err error, class model.Class) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) || e.Class != class {
		t.Errorf("the error is %v, want class %s", err, class)
	}
}
