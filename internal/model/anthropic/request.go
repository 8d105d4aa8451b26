package anthropic

import (
	"encoding/json"

	"perdure.dev/perdure/internal/model"
)

// native is the Native part of an answer of this provider: the content blocks as they go back. The key tells it from
// what another provider may have left in the same session.
type native struct {
	Blocks []json.RawMessage `json:"anthropic_content"`
}

// messagesRequest and what it is made of are the request of https://docs.anthropic.com/en/api/messages.
type messagesRequest struct {
	Model     string    `json:"model"`
	MaxTokens int       `json:"max_tokens"`
	Stream    bool      `json:"stream"`
	System    []*block  `json:"system,omitempty"`
	Tools     []tool    `json:"tools,omitempty"`
	Messages  []message `json:"messages"`
}

type tool struct {
	Name        string                     `json:"name"`
	Description string                     `json:"description"`
	InputSchema map[string]json.RawMessage `json:"input_schema"`
}

type message struct {
	Role    string   `json:"role"`
	Content []*block `json:"content"`
}

// block is a text, a tool_use or a tool_result; or Raw, which goes as it is.
type block struct {
	Raw json.RawMessage `json:"-"`

	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   []*block        `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Cache     *cache          `json:"cache_control,omitempty"`
}

type cache struct {
	Type string `json:"type"`
}

// MarshalJSON writes the block, or what it stands for.
func (b *block) MarshalJSON() ([]byte, error) {
	if b.Raw != nil {
		return b.Raw, nil
	}
	type plain block
	return json.Marshal((*plain)(b))
}

func textBlock(text string) *block { return &block{Type: "text", Text: text} }

func ephemeral() *cache { return &cache{Type: "ephemeral"} }

func (p *Provider) request(req model.Request) (messagesRequest, error) {
	out := messagesRequest{Model: p.name, MaxTokens: req.MaxOutput, Stream: true}
	if out.MaxTokens == 0 {
		out.MaxTokens = p.Info().MaxOutput
	}
	for _, t := range req.Tools {
		var schema map[string]json.RawMessage
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return out, model.NewError(model.BadRequest, err, "the schema of tool %s is no JSON object", t.Name)
		}
		if schema == nil {
			schema = map[string]json.RawMessage{}
		}
		schema["type"] = json.RawMessage(`"object"`)
		out.Tools = append(out.Tools, tool{t.Name, t.Description, schema})
	}
	for _, m := range req.Messages {
		if m.Role == model.System {
			b := textBlock(m.Text)
			b.Cache = ephemeral()
			out.System = append(out.System, b)
			continue
		}
		role := "user"
		if m.Role == model.Assistant {
			role = "assistant"
		}
		if n := len(out.Messages) - 1; role == "user" && n >= 0 && out.Messages[n].Role == role {
			// Results and user messages in a row are one message here.
			out.Messages[n].Content = append(out.Messages[n].Content, blocks(m)...)
			continue
		}
		out.Messages = append(out.Messages, message{role, blocks(m)})
	}
	markCache(out.Messages)
	return out, nil
}

// markCache lets the provider cache everything up to the last block.
func markCache(messages []message) {
	if len(messages) == 0 || messages[len(messages)-1].Role != "user" {
		return
	}
	if content := messages[len(messages)-1].Content; len(content) > 0 {
		content[len(content)-1].Cache = ephemeral()
	}
}

func blocks(m model.Message) []*block {
	switch m.Role {
	case model.Tool:
		return []*block{{Type: "tool_result", ToolUseID: m.CallID, Content: []*block{textBlock(m.Text)}, IsError: m.Error}}
	case model.Assistant:
		var out []*block
		var n native
		if len(m.Native) > 0 && json.Unmarshal(m.Native, &n) == nil && len(n.Blocks) > 0 {
			for _, b := range n.Blocks {
				out = append(out, &block{Raw: b})
			}
			return out
		}
		if m.Text != "" {
			out = append(out, textBlock(m.Text))
		}
		for _, c := range m.ToolCalls {
			out = append(out, &block{Type: "tool_use", ID: c.CallID, Name: c.Name, Input: model.WireArguments(c)})
		}
		return out
	default:
		return []*block{textBlock(m.Text)}
	}
}
