package anthropic

import (
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

// answer puts the events of one answer together. The SDK keeps the blocks; the arguments of tool calls are kept here as well,
// since the SDK replaces incomplete ones by {}, and an incomplete call must be known as such.
type answer struct {
	msg    sdk.Message
	inputs map[int64]string // block index → arguments as they arrived
	closed map[int64]bool   // blocks that have ended
	done   bool             // message_stop has arrived
}

func (a *answer) add(ev sdk.MessageStreamEventUnion, sink model.Sink) error {
	if a.inputs == nil {
		a.inputs, a.closed = map[int64]string{}, map[int64]bool{}
	}
	switch ev.Type {
	case "content_block_start":
		if ev.ContentBlock.Type == "tool_use" {
			// A proxy may send the whole input at once; normally it is {} here and follows in deltas.
			if in := string(rawInput(ev.ContentBlock.RawJSON())); in != "{}" {
				a.inputs[ev.Index] = in
			}
			sink.Send(model.Delta{ToolName: ev.ContentBlock.Name})
		}
	case "content_block_delta":
		switch ev.Delta.Type {
		case "text_delta":
			sink.Send(model.Delta{Text: ev.Delta.Text})
		case "thinking_delta":
			sink.Send(model.Delta{Thinking: ev.Delta.Thinking})
		case "input_json_delta":
			a.inputs[ev.Index] += ev.Delta.PartialJSON
		}
	case "content_block_stop":
		a.closed[ev.Index] = true
	case "message_stop":
		a.done = true
	}
	return a.msg.Accumulate(ev)
}

func rawInput(block string) json.RawMessage {
	var b struct {
		Input json.RawMessage `json:"input"`
	}
	if json.Unmarshal([]byte(block), &b) != nil || len(b.Input) == 0 {
		return json.RawMessage("{}")
	}
	return b.Input
}

func (a *answer) finish() (model.Response, error) {
	var text strings.Builder
	var raw []model.RawCall
	var at []int // the block of each call
	for i, b := range a.msg.Content {
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
		case "tool_use":
			// Without the block's own end nobody has said that the arguments are whole.
			raw = append(raw, model.RawCall{ID: b.ID, Name: b.Name, Arguments: a.inputs[int64(i)], Cut: !a.closed[int64(i)]})
			at = append(at, i)
		}
	}
	stop := string(a.msg.StopReason)
	if stop == "" && !a.done && len(raw) == 0 {
		return model.Response{}, model.NewError(model.Network, nil, "the model's answer ended without an end")
	}
	last := len(raw) - 1
	r := model.Response{Text: text.String(), Stop: model.StopReason(stop)}
	switch stop {
	case "end_turn", "stop_sequence":
		r.Stop = model.StopEnd
	case "tool_use":
		r.Stop = model.StopTools
	case "max_tokens", "model_context_window_exceeded", "":
		r.Stop = model.StopLength
		if last >= 0 && at[last] == len(a.msg.Content)-1 {
			raw[last].Cut = true
		}
	case "refusal":
		r.Stop = model.StopRefusal
		if last >= 0 {
			raw[last].Cut = true
		}
	}
	r.ToolCalls = model.FinishCalls(raw)
	u := a.msg.Usage
	r.Usage = event.Usage{
		Input:  u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens, // the API counts them apart
		Output: u.OutputTokens, Cached: u.CacheReadInputTokens,
	}
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
	for i, b := range a.msg.Content {
		if c, ok := call[i]; ok {
			block, err := json.Marshal(map[string]any{"type": "tool_use", "id": c.CallID, "name": c.Name, "input": model.WireArguments(c)})
			if err != nil {
				return nil
			}
			n.Blocks = append(n.Blocks, block)
			continue
		}
		switch b.Type {
		case "text":
			if b.Text == "" {
				continue // the API refuses empty text
			}
		case "thinking":
			if b.Signature == "" {
				continue // cut before it was signed: it would be refused
			}
			thinking = true
		case "redacted_thinking":
			thinking = true
		}
		if b.RawJSON() != "" {
			n.Blocks = append(n.Blocks, json.RawMessage(b.RawJSON()))
		}
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
