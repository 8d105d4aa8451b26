// Package anthropic talks to Anthropic's messages API.
//
// It streams, keeps signed thinking blocks as the answer's Native part and sends them back unchanged, marks the end of the
// conversation for the provider's cache, and leaves retries to package model.
// Wire format: https://docs.anthropic.com/en/api/messages-streaming
package anthropic

import (
	"context"
	"errors"
	"net/http"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/model"
)

// DefaultBaseURL is Anthropic's own endpoint.
const DefaultBaseURL = "https://api.anthropic.com/"

// Config says how to reach the endpoint.
type Config struct {
	BaseURL     string        // "": DefaultBaseURL
	APIKey      string        // may be empty for an endpoint of one's own
	HTTPClient  *http.Client  // nil: http.DefaultClient
	Clock       clock.Clock   // nil: the machine's
	IdleTimeout time.Duration // between two events; 0: 5 minutes
	Models      model.Catalog // what is known of models; nil: model.DefaultCatalog
}

// FromEnv reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY through getenv.
func FromEnv(getenv func(string) string) Config {
	return Config{BaseURL: getenv("ANTHROPIC_BASE_URL"), APIKey: getenv("ANTHROPIC_API_KEY")}
}

// Constructor returns the constructor for a model.Registry. Its error: model_key_missing.
func Constructor(cfg Config) model.Constructor {
	return func(_ context.Context, name string) (model.Provider, error) { return New(cfg, name) }
}

// Provider is one model behind the API.
type Provider struct {
	name     string
	cfg      Config
	messages sdk.MessageService
}

var _ model.Provider = (*Provider)(nil)

// New returns the provider for a model name such as "claude-sonnet-4-5". Error: model_key_missing.
func New(cfg Config, name string) (*Provider, error) {
	if cfg.APIKey == "" && cfg.BaseURL == "" {
		return nil, errdefs.New(errdefs.Denied, "model_key_missing", "there is no API key for anthropic/%s", name).
			WithHint("set ANTHROPIC_API_KEY in the daemon's environment, or ANTHROPIC_BASE_URL for an endpoint that needs none")
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
		option.WithHeader("anthropic-version", "2023-06-01"),
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithHeader("X-Api-Key", cfg.APIKey))
	}
	return &Provider{name: name, cfg: cfg, messages: sdk.NewMessageService(opts...)}, nil
}

// leastOutput is how long an answer of a model may be of which nothing is known: every one can give that much.
const leastOutput = 4096

// Info returns what is known of the model.
func (p *Provider) Info() model.Info {
	name := "anthropic/" + p.name
	f := p.cfg.Models.Find(name)
	info := model.Info{Name: name, ContextWindow: f.Window, MaxOutput: f.MaxOutput}
	if info.MaxOutput == 0 { // a request has to say it
		info.MaxOutput = leastOutput
	}
	return info
}

// Chat asks the model.
func (p *Provider) Chat(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	params, err := p.params(req)
	if err != nil {
		return model.Response{}, err
	}
	watched, alive, stop := model.WatchIdle(ctx, p.cfg.IdleTimeout)
	defer stop()
	stream := p.messages.NewStreaming(watched, params)
	if err := stream.Err(); err != nil { // the stream has no decoder then: neither Next nor Close
		return model.Response{}, model.StreamError(ctx, watched, p.classify(err))
	}
	defer stream.Close()
	var a answer
	for stream.Next() {
		alive()
		if err := a.add(stream.Current(), sink); err != nil {
			return model.Response{}, model.NewError(model.Network, err, "the model's answer is garbled")
		}
	}
	if err := stream.Err(); err != nil {
		return model.Response{}, model.StreamError(ctx, watched, p.classify(err))
	}
	if ctx.Err() != nil {
		return model.Response{}, model.StreamError(ctx, watched, ctx.Err())
	}
	return a.finish()
}

// classify turns the SDK's errors into ours; others come back as they are.
func (p *Provider) classify(err error) error {
	var api *sdk.Error
	if !errors.As(err, &api) {
		return err
	}
	var h http.Header
	if api.Response != nil {
		h = api.Response.Header
	}
	return model.FromStatus(api.StatusCode, h, string(api.Type()), api.Message, p.cfg.Clock.Now())
}
