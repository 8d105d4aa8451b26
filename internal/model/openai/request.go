package openai

import (
	"encoding/json"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"perdure.dev/perdure/internal/model"
)

func (p *Provider) params(req model.Request) (sdk.ChatCompletionNewParams, error) {
	out := sdk.ChatCompletionNewParams{
		Model:         p.name,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	if req.MaxOutput > 0 {
		if p.cfg.BaseURL == DefaultBaseURL {
			out.MaxCompletionTokens = param.NewOpt(int64(req.MaxOutput))
		} else { // compatible endpoints mostly know only the older name
			out.MaxTokens = param.NewOpt(int64(req.MaxOutput))
		}
	}
	for _, t := range req.Tools {
		var schema shared.FunctionParameters
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return out, model.NewError(model.BadRequest, err, "the schema of tool %s is no JSON object", t.Name)
		}
		out.Tools = append(out.Tools, sdk.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: t.Name, Description: param.NewOpt(t.Description), Parameters: schema,
		}))
	}
	for _, m := range req.Messages {
		out.Messages = append(out.Messages, message(m))
	}
	return out, nil
}

func message(m model.Message) sdk.ChatCompletionMessageParamUnion {
	switch m.Role {
	case model.System:
		return sdk.SystemMessage(m.Text)
	case model.Tool:
		return sdk.ToolMessage(m.Text, m.CallID)
	case model.Assistant:
		a := &sdk.ChatCompletionAssistantMessageParam{}
		if m.Text != "" {
			a.Content.OfString = param.NewOpt(m.Text)
		}
		for _, c := range m.ToolCalls {
			a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
					ID: c.CallID,
					Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
						Name: c.Name, Arguments: string(model.WireArguments(c)),
					},
				},
			})
		}
		return sdk.ChatCompletionMessageParamUnion{OfAssistant: a}
	default:
		return sdk.UserMessage(m.Text)
	}
}
