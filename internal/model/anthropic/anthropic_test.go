package anthropic_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/model/anthropic"
	"perdure.dev/perdure/internal/model/modeltest"
)

func send(w io.Writer, typ string, v map[string]any) {
	v["type"] = typ
	b, _ := json.Marshal(v)
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", typ, b)
}

func block(w io.Writer, i int, start map[string]any, deltas []map[string]any, stop bool) {
	send(w, "content_block_start", map[string]any{"index": i, "content_block": start})
	for _, d := range deltas {
		send(w, "content_block_delta", map[string]any{"index": i, "delta": d})
	}
	if stop {
		send(w, "content_block_stop", map[string]any{"index": i})
	}
}

func stream(w io.Writer, s modeltest.Scene) {
	send(w, "message_start", map[string]any{"message": map[string]any{
		"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []any{}, "stop_reason": nil,
		"usage": map[string]any{"input_tokens": s.Usage.Input - s.Usage.Cached, "cache_read_input_tokens": s.Usage.Cached, "cache_creation_input_tokens": 0, "output_tokens": 1},
	}})
	i := 0
	if len(s.Text) > 0 {
		var d []map[string]any
		for _, t := range s.Text {
			d = append(d, map[string]any{"type": "text_delta", "text": t})
		}
		block(w, i, map[string]any{"type": "text", "text": ""}, d, true)
		i++
	}
	for _, c := range s.Calls {
		var d []map[string]any
		for _, p := range c.Parts {
			d = append(d, map[string]any{"type": "input_json_delta", "partial_json": p})
		}
		block(w, i, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}}, d, s.Stop != modeltest.StopNone)
		i++
	}
}

func end(w io.Writer, s modeltest.Scene) {
	stop := map[modeltest.Stop]string{modeltest.StopEnd: "end_turn", modeltest.StopTools: "tool_use", modeltest.StopLength: "max_tokens"}[s.Stop]
	send(w, "message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": s.Usage.Output}})
	send(w, "message_stop", map[string]any{})
}

func provider(t *testing.T, base string) model.Provider {
	t.Helper()
	p, err := anthropic.New(anthropic.Config{BaseURL: base, APIKey: "k"}, "claude-x")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	modeltest.Run(t, modeltest.Wire{
		New: provider, Stream: stream, End: end,
		ErrorBody: func(kind, message string) string {
			return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
		},
		TooLong: "prompt is too long: 10 tokens > 9 maximum",
		CheckRequest: func(t *testing.T, body []byte) {
			var r struct {
				Stream    bool `json:"stream"`
				MaxTokens int  `json:"max_tokens"`
				Messages  []struct {
					Role    string           `json:"role"`
					Content []map[string]any `json:"content"`
				} `json:"messages"`
			}
			if err := json.Unmarshal(body, &r); err != nil {
				t.Fatal(err)
			}
			var roles []string
			for _, m := range r.Messages {
				roles = append(roles, m.Role)
			}
			// Both results and the message behind them are one user message.
			if !r.Stream || r.MaxTokens == 0 || strings.Join(roles, " ") != "user assistant user" || len(r.Messages[2].Content) != 3 {
				t.Fatalf("request %s", body)
			}
			for _, b := range r.Messages[1].Content[1:] {
				if _, ok := b["input"].(map[string]any); !ok {
					t.Errorf("the input of %v is no object", b)
				}
			}
		},
	})
}

// Signed thinking goes back as it came.
func TestThinkingGoesBack(t *testing.T) {
	var second []byte
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if n++; n == 2 {
			second, _ = io.ReadAll(r.Body)
			stream(w, modeltest.Scene{Text: []string{"ok"}})
			end(w, modeltest.Scene{Stop: modeltest.StopEnd})
			return
		}
		stream(w, modeltest.Scene{})
		block(w, 0, map[string]any{"type": "thinking", "thinking": "", "signature": ""},
			[]map[string]any{{"type": "thinking_delta", "thinking": "hmm <x>"}, {"type": "signature_delta", "signature": "c2ln"}}, true)
		block(w, 1, map[string]any{"type": "tool_use", "id": "t1", "name": "run", "input": map[string]any{}},
			[]map[string]any{{"type": "input_json_delta", "partial_json": `{"command":"ls"}`}}, true)
		end(w, modeltest.Scene{Stop: modeltest.StopTools})
	}))
	defer s.Close()
	p := provider(t, s.URL)
	req := model.Request{Messages: []model.Message{{Role: model.User, Text: "hi"}}}
	r, err := p.Chat(t.Context(), req, nil)
	if err != nil || len(r.Native) == 0 || len(r.ToolCalls) != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	req.Messages = append(req.Messages, model.Message{Role: model.Assistant, ToolCalls: r.ToolCalls, Native: r.Native},
		model.Message{Role: model.Tool, CallID: "t1", Text: "files"})
	if _, err := p.Chat(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	var body struct {
		Messages []struct{ Content []map[string]any }
	}
	if err := json.Unmarshal(second, &body); err != nil {
		t.Fatal(err)
	}
	c := body.Messages[1].Content
	if len(c) != 2 || c[0]["thinking"] != "hmm <x>" || c[0]["signature"] != "c2ln" || c[1]["type"] != "tool_use" {
		t.Errorf("sent back: %v", c)
	}
}

// An error within a stream that began well is classed like any other.
func TestErrorWithinStream(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		stream(w, modeltest.Scene{Text: []string{"a"}})
		send(w, "error", map[string]any{"error": map[string]any{"type": "overloaded_error", "message": "Overloaded"}})
	}))
	defer s.Close()
	_, err := provider(t, s.URL).Chat(t.Context(), model.Request{Messages: []model.Message{{Role: model.User, Text: "hi"}}}, nil)
	if e := model.AsError(err); e == nil || e.Class != model.Overloaded {
		t.Errorf("%v", err)
	}
}

func TestMissingKey(t *testing.T) {
	_, err := anthropic.New(anthropic.Config{}, "claude-x")
	if errdefs.CodeOf(err) != "model_key_missing" || errdefs.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}
