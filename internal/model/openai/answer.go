package openai

import (
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

// answer puts the chunks of one answer together.
type answer struct {
	text, refusal strings.Builder
	calls         []model.RawCall
	index         map[int64]int // the wire's index of a call → its place in calls
	reason        string        // reasonreason; "" while none has arrived
	usage         event.Usage
}

func (a *answer) add(chunk sdk.ChatCompletionChunk, sink model.Sink) {
	if chunk.JSON.Usage.Valid() { // some endpoints repeat it on each chunk: the last one counts
		a.usage = event.Usage{
			Input: chunk.Usage.PromptTokens, Output: chunk.Usage.CompletionTokens, Cached: chunk.Usage.PromptTokensDetails.CachedTokens,
		}
	}
	for _, ch := range chunk.Choices {
		if ch.Index != 0 {
			continue
		}
		d := ch.Delta
		if d.Content != "" {
			a.text.WriteString(d.Content)
			sink.Send(model.Delta{Text: d.Content})
		}
		a.refusal.WriteString(d.Refusal)
		if raw, ok := d.JSON.ExtraFields["reasoning_content"]; ok { // DeepSeek, vLLM and others
			var s string
			if json.Unmarshal([]byte(raw.Raw()), &s) == nil && s != "" {
				sink.Send(model.Delta{Thinking: s})
			}
		}
		for _, t := range d.ToolCalls {
			a.addCall(t, sink)
		}
		if ch.FinishReason != "" {
			a.reason = ch.FinishReason
		}
	}
}

func (a *answer) addCall(t sdk.ChatCompletionChunkChoiceDeltaToolCall, sink model.Sink) {
	i, ok := a.index[t.Index]
	// Some endpoints give every call the index 0 and tell them apart by a new id alone.
	if ok && t.ID != "" && a.calls[i].ID != "" && t.ID != a.calls[i].ID {
		ok = false
	}
	if !ok {
		if a.index == nil {
			a.index = map[int64]int{}
		}
		i = len(a.calls)
		a.index[t.Index] = i
		a.calls = append(a.calls, model.RawCall{})
		sink.Send(model.Delta{ToolName: t.Function.Name})
	}
	c := &a.calls[i]
	if t.ID != "" {
		c.ID = t.ID
	}
	if c.Name == "" {
		c.Name = t.Function.Name
	}
	c.Arguments += t.Function.Arguments
}

func (a *answer) finish() (model.Response, error) {
	r := model.Response{Text: a.text.String(), Usage: a.usage}
	last := len(a.calls) - 1
	switch a.reason {
	case "stop", "tool_calls", "function_call":
		r.Stop = model.StopEnd
		if last >= 0 { // some endpoints say "stop" although there are calls
			r.Stop = model.StopTools
		}
	case "length":
		r.Stop = model.StopLength
		if last >= 0 {
			a.calls[last].Cut = true
		}
	case "content_filter":
		r.Stop = model.StopRefusal
		if last >= 0 {
			a.calls[last].Cut = true
		}
	case "":
		if last < 0 {
			return model.Response{}, model.NewError(model.Network, nil, "the model's answer ended without an end")
		}
		r.Stop = model.StopLength
		a.calls[last].Cut = true // nobody said that it was whole
	default:
		r.Stop = model.StopReason(a.reason)
	}
	if a.refusal.Len() > 0 {
		r.Stop = model.StopRefusal
		r.Text += a.refusal.String()
	}
	r.ToolCalls = model.FinishCalls(a.calls)
	return r, nil
}

// streamFault reads the error object that some endpoints send within a stream.
func streamFault(data []byte) (kind, message string) {
	var f struct {
		Error json.RawMessage `json:"error"`
	}
	var o struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(data, &f) != nil || json.Unmarshal(f.Error, &o) != nil {
		return "server_error", string(f.Error)
	}
	kind = strings.TrimSpace(o.Type + " " + strings.Trim(string(o.Code), `"`))
	if kind == "" {
		kind = "server_error"
	}
	return kind, o.Message
}
