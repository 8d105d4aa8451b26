package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
)

// endlessLog makes the events of a long session as they are read: messages, turns and tool calls of 100 bytes and more.
type endlessLog struct {
	id     session.ID
	n      int
	handed int
}

func (l *endlessLog) Read(_ context.Context, _ session.ID, after event.Seq, limit int) ([]event.Event, error) {
	limit = min(limit, l.n-int(after))
	out := make([]event.Event, limit)
	for i := range out {
		out[i] = l.at(after + event.Seq(i) + 1)
	}
	l.handed += limit
	return out, nil
}

func (l *endlessLog) at(seq event.Seq) event.Event {
	e := event.Event{ID: "evt_x", Seq: seq, SessionID: l.id, Hash: "x"}
	set := func(typ event.Type, data string) { e.Type, e.Data = typ, json.RawMessage(data) }
	if seq == 1 {
		set(event.SessionCreated, `{"name":"long","workspace_id":"ws_1","spec":{"model":"x","image":"host","driver":"process","limits":{}}}`)
		return e
	}
	switch seq % 8 {
	case 0:
		set(event.MessageUser, `{"text":"`+strings.Repeat("x", 100)+`","delivery":"queue"}`)
	case 1:
		set(event.TurnStarted, fmt.Sprintf(`{"messages":[%d]}`, seq-1))
	case 2:
		set(event.ModelRequested, `{"model":"x","messages":1,"attempt":1}`)
	case 3:
		set(event.ModelResponded, `{"stop_reason":"tool","usage":{"input":10,"output":10},"duration_ms":1}`)
	case 4:
		set(event.MessageAgent, `{"text":"`+strings.Repeat("y", 100)+`","tool_calls":[{"call_id":"c","name":"run","arguments":{"command":"ls"}}]}`)
	case 5:
		set(event.ToolRequested, `{"call_id":"c","name":"run","arguments":{"command":"ls"}}`)
	case 6:
		set(event.ToolFinished, `{"call_id":"c","outcome":"ok","output":"`+strings.Repeat("z", 100)+`","duration_ms":1}`)
	case 7:
		set(event.TurnFinished, `{"reason":"answered"}`)
	}
	return e
}

var randomParts = regexp.MustCompile(`(sess|evt)_[0-9a-z]{26}|"head_hash": "[0-9a-f]{64}"`)

// scrub replaces what differs from run to run.
func scrub(s string) string {
	return randomParts.ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasPrefix(m, `"`) {
			return `"head_hash": "…"`
		}
		return m[:strings.Index(m, "_")] + "_…"
	})
}
