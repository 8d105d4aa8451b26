package openai

import (
	"encoding/json"

	"perdure.dev/perdure/internal/model"
)

// chatRequest and what it is made of are the request of https://platform.openai.com/docs/api-reference/chat/create.
type chatRequest struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Tools               []tool          `json:"tools,omitempty"`
	Stream              bool            `json:"stream"`
	StreamOptions       map[string]bool `json:"stream_options"`
	MaxTokens           int             `json:"max_tokens,omitempty"`
	MaxCompletionTokens int             `json:"max_completion_tokens,omitempty"`
}

type message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	CallID    string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string   `json:"type"`
	Function toolSpec `json:"function"`
}

type toolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

func (p *Provider) request(req model.Request) (chatRequest, error) {
	out := chatRequest{Model: p.name, Stream: true, StreamOptions: map[string]bool{"include_usage": true}}
	if p.cfg.BaseURL == DefaultBaseURL {
		out.MaxCompletionTokens = req.MaxOutput
	} else { // compatible endpoints mostly know only the older name
		out.MaxTokens = req.MaxOutput
	}
	for _, t := range req.Tools {
		var schema map[string]json.RawMessage
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return out, model.NewError(model.BadRequest, err, "the schema of tool %s is no JSON object", t.Name)
		}
		out.Tools = append(out.Tools, tool{Type: "function", Function: toolSpec{t.Name, t.Description, t.Schema}})
	}
	for _, m := range req.Messages {
		out.Messages = append(out.Messages, messageOf(m))
	}
	return out, nil
}

func messageOf(m model.Message) message {
	out := message{Role: string(m.Role), Content: &m.Text, CallID: m.CallID}
	if m.Role != model.Assistant {
		return out
	}
	if m.Text == "" {
		out.Content = nil
	}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, toolCall{
			ID: c.CallID, Type: "function", Function: function{Name: c.Name, Arguments: string(model.WireArguments(c))},
		})
	}
	return out
}
