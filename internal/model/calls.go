package model

import (
	"encoding/json"
	"strings"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// RawCall is a tool call as it came over the wire.
type RawCall struct {
	ID, Name  string
	Arguments string // what arrived; empty counts as {}
	Cut       bool   // the provider knows that something is missing
}

// FinishCalls turns what arrived into tool calls: it fills in missing ids, renames repeated ones, and marks as Cut whatever is
// not a JSON object. It never repairs arguments.
func FinishCalls(raw []RawCall) []event.ToolCall {
	if len(raw) == 0 {
		return nil
	}
	seen := map[string]bool{}
	calls := make([]event.ToolCall, 0, len(raw))
	for _, r := range raw {
		c := event.ToolCall{CallID: r.ID, Name: r.Name, Cut: r.Cut}
		if c.CallID == "" || seen[c.CallID] {
			c.CallID = "call_" + strings.TrimPrefix(string(id.NewEvent()), "evt_")
		}
		seen[c.CallID] = true
		if c.Name == "" {
			c.Name, c.Cut = "unknown", true
		}
		text := r.Arguments
		if strings.TrimSpace(text) == "" {
			text = "{}"
		}
		if !c.Cut && isObject(json.RawMessage(text)) {
			c.Arguments = json.RawMessage(text)
		} else {
			c.Cut = true
			c.Arguments, _ = json.Marshal(r.Arguments) // a string always marshals
		}
		calls = append(calls, c)
	}
	return calls
}

// WireArguments is the JSON object that stands for the call's arguments when the call is sent back to a model. For a Cut call
// it shows what had arrived, since APIs accept only objects.
func WireArguments(c event.ToolCall) json.RawMessage {
	if !c.Cut {
		return c.Arguments
	}
	b, err := json.Marshal(map[string]json.RawMessage{"incomplete_arguments": c.Arguments})
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}
