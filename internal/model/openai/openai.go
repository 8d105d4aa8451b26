// Package openai talks to OpenAI's chat completions API and to any endpoint that speaks it.
//
// It streams, asks for usage with the last chunk, and leaves retries to package model.
// Wire format: https://platform.openai.com/docs/api-reference/chat-streaming
package openai

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/model"
)

// DefaultBaseURL is OpenAI's own endpoint.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config says how to reach the endpoint.
type Config struct {
	BaseURL     string        // "": DefaultBaseURL
	APIKey      string        // may be empty for an endpoint of one's own
	HTTPClient  *http.Client  // nil: http.DefaultClient
	Clock       clock.Clock   // nil: the machine's
	IdleTimeout time.Duration // between two chunks; 0: 5 minutes
	Models      model.Catalog // what is known of models; nil: model.DefaultCatalog
}

// FromEnv reads OPENAI_BASE_URL and OPENAI_API_KEY through getenv.
func FromEnv(getenv func(string) string) Config {
	return Config{BaseURL: getenv("OPENAI_BASE_URL"), APIKey: getenv("OPENAI_API_KEY")}
}

// Constructor returns the constructor for a model.Registry. Its error: model_key_missing.
func Constructor(cfg Config) model.Constructor {
	return func(_ context.Context, name string) (model.Provider, error) { return New(cfg, name) }
}

// Provider is one model behind the API.
type Provider struct {
	name string
	cfg  Config
	chat sdk.ChatCompletionService
}

var _ model.Provider = (*Provider)(nil)

// New returns the provider for a model name such as "gpt-5". Error: model_key_missing.
func New(cfg Config, name string) (*Provider, error) {
	if cfg.APIKey == "" && cfg.BaseURL == "" {
		return nil, errdefs.New(errdefs.Denied, "model_key_missing", "there is no API key for openai/%s", name).
			WithHint("set OPENAI_API_KEY in the daemon's environment, or OPENAI_BASE_URL for an endpoint that needs none")
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = http.DefaultClient
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.System{}
	}
	if cfg.Models == nil {
		cfg.Models = model.DefaultCatalog()
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = 5 * time.Minute
	}
	opts := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL), option.WithHTTPClient(cfg.HTTPClient), option.WithMaxRetries(0),
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(cfg.APIKey))
	}
	return &Provider{name: name, cfg: cfg, chat: sdk.NewChatCompletionService(opts...)}, nil
}

// Info returns what is known of the model.
func (p *Provider) Info() model.Info {
	name := "openai/" + p.name
	f := p.cfg.Models.Find(name)
	return model.Info{Name: name, ContextWindow: f.Window, MaxOutput: f.MaxOutput}
}

// Chat asks the model.
func (p *Provider) Chat(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	params, err := p.params(req)
	if err != nil {
		return model.Response{}, err
	}
	watched, alive, stop := model.WatchIdle(ctx, p.cfg.IdleTimeout)
	defer stop()
	stream := p.chat.NewStreaming(watched, params)
	defer stream.Close()
	var a answer
	for stream.Next() {
		alive()
		a.add(stream.Current(), sink)
	}
	if err := stream.Err(); err != nil {
		return model.Response{}, model.StreamError(ctx, watched, p.classify(err))
	}
	if ctx.Err() != nil { // the decoder reports a canceled read as a clean end
		return model.Response{}, model.StreamError(ctx, watched, ctx.Err())
	}
	return a.finish()
}

// classify turns the SDK's errors into ours; others come back as they are.
func (p *Provider) classify(err error) error {
	var api *sdk.Error
	if errors.As(err, &api) {
		var h http.Header
		if api.Response != nil {
			h = api.Response.Header
		}
		return model.FromStatus(api.StatusCode, h, strings.TrimSpace(api.Type+" "+api.Code), api.Message, p.cfg.Clock.Now())
	}
	var se *ssestream.StreamError
	if errors.As(err, &se) {
		kind, msg := streamFault(se.Event.Data)
		return model.FromStatus(http.StatusOK, nil, kind, msg, p.cfg.Clock.Now())
	}
	return err
}
