package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/model/modeltest"
	"perdure.dev/perdure/internal/model/openai"
)

func chunk(w io.Writer, v map[string]any) {
	v["id"], v["object"], v["model"], v["created"] = "x", "chat.completion.chunk", "m", 1
	b, _ := json.Marshal(v)
	fmt.Fprintf(w, "data: %s\n\n", b)
}

func delta(w io.Writer, d map[string]any, reason any) {
	chunk(w, map[string]any{"choices": []any{map[string]any{"index": 0, "delta": d, "finish_reason": reason}}})
}

func stream(w io.Writer, s modeltest.Scene) {
	for _, t := range s.Text {
		delta(w, map[string]any{"content": t}, nil)
	}
	for i, c := range s.Calls {
		delta(w, map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": ""}}}}, nil)
		for _, p := range c.Parts {
			delta(w, map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": p}}}}, nil)
		}
	}
}

func end(w io.Writer, s modeltest.Scene) {
	delta(w, map[string]any{}, map[modeltest.Stop]string{modeltest.StopEnd: "stop", modeltest.StopTools: "tool_calls", modeltest.StopLength: "length"}[s.Stop])
	chunk(w, map[string]any{"choices": []any{}, "usage": map[string]any{
		"prompt_tokens": s.Usage.Input, "completion_tokens": s.Usage.Output, "prompt_tokens_details": map[string]any{"cached_tokens": s.Usage.Cached},
	}})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func TestConformance(t *testing.T) {
	modeltest.Run(t, modeltest.Wire{
		New: func(t *testing.T, base string) model.Provider {
			p, err := openai.New(openai.Config{BaseURL: base, APIKey: "k"}, "m")
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Stream: stream, End: end,
		ErrorBody: func(kind, message string) string {
			return fmt.Sprintf(`{"error":{"type":%q,"message":%q,"code":null,"param":null}}`, kind, message)
		},
		TooLong: "This model's maximum context length is 10 tokens",
		CheckRequest: func(t *testing.T, body []byte) {
			var r struct {
				Stream   bool `json:"stream"`
				Messages []struct {
					Role      string `json:"role"`
					CallID    string `json:"tool_call_id"`
					ToolCalls []struct {
						Function struct{ Arguments string } `json:"function"`
					} `json:"tool_calls"`
				} `json:"messages"`
				Tools         []any           `json:"tools"`
				StreamOptions map[string]bool `json:"stream_options"`
			}
			if err := json.Unmarshal(body, &r); err != nil {
				t.Fatal(err)
			}
			if !r.Stream || !r.StreamOptions["include_usage"] || len(r.Tools) != 1 || len(r.Messages) != 6 || r.Messages[3].CallID != "c1" {
				t.Errorf("request %s", body)
			}
			for _, c := range r.Messages[2].ToolCalls {
				var o map[string]any
				if json.Unmarshal([]byte(c.Function.Arguments), &o) != nil {
					t.Errorf("arguments %q are no object", c.Function.Arguments)
				}
			}
		},
	})
}

func TestMissingKey(t *testing.T) {
	_, err := model.Registry{"openai": openai.Constructor(openai.Config{})}.Open(t.Context(), "openai/gpt-5")
	if errdefs.CodeOf(err) != "model_key_missing" || errdefs.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}
