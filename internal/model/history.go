package model

import (
	"encoding/json"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// CheckHistory reports why a model API would refuse the conversation, or nil. It applies the stricter of the rules of the OpenAI
// chat completions and the Anthropic messages API:
//
//   - a system message stands first or nowhere; the first other message is the user's;
//   - an assistant message has text or tool calls; its calls have names and ids that are unique in it, and arguments that
//     are a JSON object, or a JSON string if Cut;
//   - right behind it comes exactly one result for each of its calls, and there are no other results;
//   - no text is empty; the last message is the user's or a result.
func CheckHistory(messages []Message) error {
	bad := func(i int, why string) error {
		return errdefs.New(errdefs.Internal, "history_invalid", "message %d (%s): %s", i, messages[i].Role, why)
	}
	open := map[string]bool{}
	started := false
	for i, m := range messages {
		if len(open) > 0 && m.Role != Tool {
			return bad(i, "a tool call before it has no result")
		}
		switch m.Role {
		case System:
			if i != 0 {
				return bad(i, "it is not the first")
			}
		case User:
			started = true
		case Assistant:
			if !started {
				return bad(i, "it comes before the first user message")
			}
			if m.Text == "" && len(m.ToolCalls) == 0 {
				return bad(i, "it is empty")
			}
			for _, c := range m.ToolCalls {
				if why := checkCall(c, open); why != "" {
					return bad(i, why)
				}
				open[c.CallID] = true
			}
			continue // its text may be empty
		case Tool:
			if !open[m.CallID] {
				return bad(i, "a result without a call: "+m.CallID)
			}
			delete(open, m.CallID)
		default:
			return bad(i, "unknown role")
		}
		if strings.TrimSpace(m.Text) == "" {
			return bad(i, "its text is empty")
		}
	}
	switch n := len(messages) - 1; {
	case n < 0:
		return errdefs.New(errdefs.Internal, "history_invalid", "the conversation is empty")
	case len(open) > 0:
		return bad(n, "a tool call has no result")
	case messages[n].Role != User && messages[n].Role != Tool:
		return bad(n, "it is the last, but neither the user's nor a result")
	}
	return nil
}

func checkCall(c event.ToolCall, open map[string]bool) string {
	switch {
	case c.CallID == "" || c.Name == "":
		return "a tool call without id or name"
	case open[c.CallID]:
		return "two tool calls with the id " + c.CallID
	case c.Cut != isString(c.Arguments) || !c.Cut && !isObject(c.Arguments):
		return "the arguments of " + c.CallID + " are no JSON object"
	}
	return ""
}

func isObject(raw json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(raw, &m) == nil && m != nil
}

func isString(raw json.RawMessage) bool {
	var s string
	return json.Unmarshal(raw, &s) == nil && string(raw) != "null"
}
