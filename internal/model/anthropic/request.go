package anthropic

import (
	"encoding/json"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"perdure.dev/perdure/internal/model"
)

// native is the Native part of an answer of this provider: the content blocks as they go back. The key tells it from
// what another provider may have left in the same session.
type native struct {
	Blocks []json.RawMessage `json:"anthropic_content"`
}

func (p *Provider) params(req model.Request) (sdk.MessageNewParams, error) {
	out := sdk.MessageNewParams{Model: p.name, MaxTokens: int64(req.MaxOutput)}
	if out.MaxTokens == 0 {
		out.MaxTokens = int64(p.Info().MaxOutput)
	}
	for _, t := range req.Tools {
		var schema sdk.ToolInputSchemaParam
		var rest map[string]any
		if err := json.Unmarshal(t.Schema, &rest); err != nil {
			return out, model.NewError(model.BadRequest, err, "the schema of tool %s is no JSON object", t.Name)
		}
		delete(rest, "type") // always "object", which the SDK writes
		schema.ExtraFields = rest
		out.Tools = append(out.Tools, sdk.ToolUnionParam{OfTool: &sdk.ToolParam{
			Name: t.Name, Description: param.NewOpt(t.Description), InputSchema: schema,
		}})
	}
	for _, m := range req.Messages {
		if m.Role == model.System {
			out.System = append(out.System, sdk.TextBlockParam{Text: m.Text, CacheControl: sdk.NewCacheControlEphemeralParam()})
			continue
		}
		content := blocks(m)
		n := len(out.Messages) - 1
		switch {
		case m.Role == model.Assistant:
			out.Messages = append(out.Messages, sdk.NewAssistantMessage(content...))
		case n >= 0 && out.Messages[n].OfUser != nil: // results and user messages in a row are one message here
			out.Messages[n].OfUser.Content = append(out.Messages[n].OfUser.Content, content...)
		default:
			out.Messages = append(out.Messages, sdk.NewUserMessage(content...))
		}
	}
	markCache(out.Messages)
	return out, nil
}

// markCache lets the provider cache everything up to the last block.
func markCache(messages []sdk.MessageParam) {
	if len(messages) == 0 || messages[len(messages)-1].OfUser == nil {
		return
	}
	content := messages[len(messages)-1].OfUser.Content
	if len(content) == 0 {
		return
	}
	switch last := content[len(content)-1]; {
	case last.OfText != nil:
		last.OfText.CacheControl = sdk.NewCacheControlEphemeralParam()
	case last.OfToolResult != nil:
		last.OfToolResult.CacheControl = sdk.NewCacheControlEphemeralParam()
	}
}

func blocks(m model.Message) []sdk.ContentBlockParamUnion {
	switch m.Role {
	case model.Tool:
		return []sdk.ContentBlockParamUnion{sdk.NewToolResultBlock(m.CallID, m.Text, m.Error)}
	case model.Assistant:
		var n native
		if len(m.Native) > 0 && json.Unmarshal(m.Native, &n) == nil && len(n.Blocks) > 0 {
			out := make([]sdk.ContentBlockParamUnion, 0, len(n.Blocks))
			for _, b := range n.Blocks {
				out = append(out, param.Override[sdk.ContentBlockParamUnion](b))
			}
			return out
		}
		var out []sdk.ContentBlockParamUnion
		if m.Text != "" {
			out = append(out, sdk.NewTextBlock(m.Text))
		}
		for _, c := range m.ToolCalls {
			out = append(out, sdk.NewToolUseBlock(c.CallID, model.WireArguments(c), c.Name))
		}
		return out
	default:
		return []sdk.ContentBlockParamUnion{sdk.NewTextBlock(m.Text)}
	}
}
