package anthropic

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

// streamEvent is an event of https://docs.anthropic.com/en/api/messages-streaming. Which fields it has depends on its type.
type streamEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage usage `json:"usage"`
	} `json:"message"`
	Block json.RawMessage `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage usage `json:"usage"`
}

// usage counts tokens; what an event does not say is nil. The input is counted in three parts.
type usage struct {
	Input         *int64 `json:"input_tokens"`
	CacheCreation *int64 `json:"cache_creation_input_tokens"`
	CacheRead     *int64 `json:"cache_read_input_tokens"`
	Output        *int64 `json:"output_tokens"`
}

// take overwrites what a later event says.
func (u *usage) take(n usage) {
	for _, f := range []struct {
		to   **int64
		from *int64
	}{{&u.Input, n.Input}, {&u.CacheCreation, n.CacheCreation}, {&u.CacheRead, n.CacheRead}, {&u.Output, n.Output}} {
		if f.from != nil {
			*f.to = f.from
		}
	}
}

func (u *usage) total() event.Usage {
	n := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	return event.Usage{Input: n(u.Input) + n(u.CacheCreation) + n(u.CacheRead), Output: n(u.Output), Cached: n(u.CacheRead)}
}

// part is one content block of the answer.
type part struct {
	start                     map[string]json.RawMessage // as it began, with fields that nobody here knows
	kind, id, name            string
	text, thinking, signature strings.Builder
	input                     strings.Builder // arguments as they arrived; an incomplete call must be known as such
	closed                    bool
}

// answer puts the events of one answer together.
type answer struct {
	parts []*part
	index map[int]*part // the wire's index of a block; some proxies leave numbers out
	usage usage
	stop  string
	done  bool // message_stop has arrived
}

func (a *answer) add(ev streamEvent, sink model.Sink) error {
	switch ev.Type {
	case "message_start":
		a.usage.take(ev.Message.Usage)
	case "content_block_start":
		p, err := newPart(ev.Block)
		if err != nil {
			return err
		}
		if a.index == nil {
			a.index = map[int]*part{}
		}
		a.parts, a.index[ev.Index] = append(a.parts, p), p
		if p.kind == "tool_use" {
			sink.Send(model.Delta{ToolName: p.name})
		}
	case "content_block_delta":
		p, d := a.index[ev.Index], ev.Delta
		if p == nil {
			return fmt.Errorf("there is no block %d", ev.Index)
		}
		p.text.WriteString(d.Text)
		p.thinking.WriteString(d.Thinking)
		p.signature.WriteString(d.Signature)
		p.input.WriteString(d.PartialJSON)
		if d.Text != "" {
			sink.Send(model.Delta{Text: d.Text})
		}
		if d.Thinking != "" {
			sink.Send(model.Delta{Thinking: d.Thinking})
		}
	case "content_block_stop":
		if p := a.index[ev.Index]; p != nil {
			p.closed = true
		}
	case "message_delta":
		a.usage.take(ev.Usage)
		if ev.Delta.StopReason != "" {
			a.stop = ev.Delta.StopReason
		}
	case "message_stop":
		a.done = true
	}
	return nil
}

func newPart(start json.RawMessage) (*part, error) {
	var b struct {
		Type, ID, Name, Text, Thinking, Signature string
		Input                                     json.RawMessage
	}
	p := &part{}
	if err := json.Unmarshal(start, &b); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(start, &p.start); err != nil {
		return nil, err
	}
	p.kind, p.id, p.name = b.Type, b.ID, b.Name
	p.text.WriteString(b.Text)
	p.thinking.WriteString(b.Thinking)
	p.signature.WriteString(b.Signature)
	// A proxy may send the whole input at once; normally it is {} here and follows in deltas.
	if in := string(b.Input); in != "{}" && in != "null" {
		p.input.WriteString(in)
	}
	return p, nil
}

func (a *answer) finish() (model.Response, error) {
	var text strings.Builder
	var raw []model.RawCall
	var at []int // the block of each call
	for i, p := range a.parts {
		switch p.kind {
		case "text":
			text.WriteString(p.text.String())
		case "tool_use":
			// Without the block's own end nobody has said that the arguments are whole.
			raw = append(raw, model.RawCall{ID: p.id, Name: p.name, Arguments: p.input.String(), Cut: !p.closed})
			at = append(at, i)
		}
	}
	if a.stop == "" && !a.done && len(raw) == 0 {
		return model.Response{}, model.NewError(model.Network, nil, "the model's answer ended without an end")
	}
	last := len(raw) - 1
	r := model.Response{Text: text.String(), Stop: model.StopReason(a.stop)}
	switch a.stop {
	case "end_turn", "stop_sequence":
		r.Stop = model.StopEnd
	case "tool_use":
		r.Stop = model.StopTools
	case "max_tokens", "model_context_window_exceeded", "":
		r.Stop = model.StopLength
		if last >= 0 && at[last] == len(a.parts)-1 {
			raw[last].Cut = true
		}
	case "refusal":
		r.Stop = model.StopRefusal
		if last >= 0 {
			raw[last].Cut = true
		}
	}
	r.ToolCalls = model.FinishCalls(raw)
	r.Usage = a.usage.total()
	r.Native = a.native(r.ToolCalls, at)
	return r, nil
}

// native returns the blocks as they go back, or nil when there is no thinking among them: the plain form does as well then.
func (a *answer) native(calls []event.ToolCall, at []int) json.RawMessage {
	var n native
	thinking := false
	call := map[int]event.ToolCall{}
	for k, i := range at {
		call[i] = calls[k]
	}
	for i, p := range a.parts {
		set := map[string]any{}
		switch p.kind {
		case "tool_use":
			c := call[i]
			set["id"], set["name"], set["input"] = c.CallID, c.Name, model.WireArguments(c)
		case "text":
			if p.text.Len() == 0 {
				continue // the API refuses empty text
			}
			set["text"] = p.text.String()
		case "thinking":
			if p.signature.Len() == 0 {
				continue // cut before it was signed: it would be refused
			}
			thinking = true
			set["thinking"], set["signature"] = p.thinking.String(), p.signature.String()
		case "redacted_thinking":
			thinking = true
		}
		b, err := p.with(set)
		if err != nil {
			return nil
		}
		n.Blocks = append(n.Blocks, b)
	}
	if !thinking {
		return nil
	}
	out, err := json.Marshal(n)
	if err != nil {
		return nil
	}
	return out
}

// with is the block as it began, with some fields as they have become.
func (p *part) with(fields map[string]any) (json.RawMessage, error) {
	b := maps.Clone(p.start)
	for name, v := range fields {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		b[name] = raw
	}
	return json.Marshal(b)
}

// fault reads the error object of an error answer or of an error event. Without one, both words are empty.
func fault(data []byte) (kind, message string) {
	var f struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &f) != nil {
		return "", ""
	}
	return f.Error.Type, f.Error.Message
}
