package openai

import (
	"encoding/json"
	"strings"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

// answer puts the chunks of one answer together.
type answer struct {
	text, refusal strings.Builder
	calls         []model.RawCall
	index         map[int64]int // the wire's index of a call → its place in calls
	reason        string        // finish_reason; "" while none has arrived
	usage         event.Usage
}

// chunk is a part of https://platform.openai.com/docs/api-reference/chat-streaming.
type chunk struct {
	Choices []struct {
		Index        int64  `json:"index"`
		FinishReason string `json:"finish_reason"`
		Delta        struct {
			Content   loose       `json:"content"`
			Refusal   loose       `json:"refusal"`
			Reasoning loose       `json:"reasoning_content"` // of DeepSeek, vLLM and others
			ToolCalls []callDelta `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

type callDelta struct {
	Index    int64  `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments loose  `json:"arguments"`
	} `json:"function"`
}

// loose is a text as the endpoints of others write it: a string, null, a list of parts, or for arguments an object.
type loose string

// UnmarshalJSON never fails.
func (l *loose) UnmarshalJSON(b []byte) error {
	var text string
	var parts []struct {
		Text string `json:"text"`
	}
	switch {
	case json.Unmarshal(b, &text) == nil: // null too
		*l = loose(text)
	case json.Unmarshal(b, &parts) == nil:
		for _, p := range parts {
			*l += loose(p.Text)
		}
	case b[0] == '{':
		*l = loose(b)
	}
	return nil
}

func (a *answer) add(c chunk, sink model.Sink) {
	if c.Usage != nil { // some endpoints repeat it on each chunk: the last one counts
		a.usage = event.Usage{
			Input: c.Usage.Prompt, Output: c.Usage.Completion, Cached: c.Usage.Details.Cached,
		}
	}
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue
		}
		d := ch.Delta
		if d.Content != "" {
			a.text.WriteString(string(d.Content))
			sink.Send(model.Delta{Text: string(d.Content)})
		}
		a.refusal.WriteString(string(d.Refusal))
		if d.Reasoning != "" {
			sink.Send(model.Delta{Thinking: string(d.Reasoning)})
		}
		for _, t := range d.ToolCalls {
			a.addCall(t, sink)
		}
		if ch.FinishReason != "" {
			a.reason = ch.FinishReason
		}
	}
}

func (a *answer) addCall(t callDelta, sink model.Sink) {
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
	c.Arguments += string(t.Function.Arguments)
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

// fault reads the error object of an error answer, or of a stream in which some endpoints send it. Without one, both words are empty.
func fault(data []byte) (kind, message string) {
	var f struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &f) != nil || len(f.Error) == 0 || string(f.Error) == "null" {
		return "", ""
	}
	var o struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(f.Error, &o) != nil {
		return "", strings.Trim(string(f.Error), `"`) // a text alone
	}
	code := strings.Trim(string(o.Code), `"`)
	if code == "null" {
		code = ""
	}
	return strings.TrimSpace(o.Type + " " + code), o.Message
}
