package model

import (
	"context"
	"encoding/json"

	"perdure.dev/perdure/internal/event"
)

// Provider is one model that can be asked.
type Provider interface {
	// Info says what is known of the model. It does not go to the network.
	Info() Info
	// Chat sends the conversation and returns the answer. Parts of it go to sink as they arrive; sink may be nil, is called
	// from one goroutine at a time, and must not block. Errors are *Error.
	Chat(ctx context.Context, req Request, sink Sink) (Response, error)
}

// Info describes a model. Zero numbers mean unknown.
type Info struct {
	Name          string // as the user wrote it: "openai/gpt-…"
	ContextWindow int    // tokens, input and output together
	MaxOutput     int    // tokens in one answer
}

// Role says who speaks.
type Role string

// The roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool" // one tool result
)

// Message is one entry of a conversation.
type Message struct {
	Role      Role
	Text      string           // of a tool message: the result
	ToolCalls []event.ToolCall // assistant only
	// Native is the provider's own form of an assistant message, sent back unchanged to the provider that made it.
	Native json.RawMessage
	CallID string // tool only: whose result this is
	Error  bool   // tool only: the call failed
}

// ToolSpec tells the model about a tool.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON schema of the arguments, an object
}

// Request is a conversation to be continued. It must pass CheckHistory.
type Request struct {
	Messages  []Message
	Tools     []ToolSpec
	MaxOutput int // tokens; 0: the provider's default
}

// StopReason says why an answer ended.
type StopReason string

// The stop reasons. Anything else that a provider reports is passed on as it is.
const (
	StopEnd     StopReason = "end"
	StopTools   StopReason = "tool_calls"
	StopLength  StopReason = "length" // the limit of output tokens
	StopRefusal StopReason = "refusal"
)

// Response is one finished answer.
type Response struct {
	Text      string
	ToolCalls []event.ToolCall
	Native    json.RawMessage
	Stop      StopReason
	Usage     event.Usage // CostMicros is not filled in; see Prices
}

// Delta is a part of an answer on its way. One field is set.
type Delta struct {
	Text     string `json:"text,omitempty"`
	Thinking string `json:"thinking,omitempty"`
	ToolName string `json:"tool_name,omitempty"` // a tool call begins
}

// Sink receives deltas.
type Sink func(Delta)

// Send passes d on, if there is anybody to receive it.
func (s Sink) Send(d Delta) {
	if s != nil {
		s(d)
	}
}
