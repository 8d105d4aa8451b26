// Package openai talks to OpenAI's chat completions API and to any endpoint that speaks it.
//
// It streams, asks for usage with the last chunk, and leaves retries to package model.
// Wire format: https://platform.openai.com/docs/api-reference/chat-streaming
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/sse"
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
	return &Provider{name: name, cfg: cfg}, nil
}

// Info returns what is known of the model.
func (p *Provider) Info() model.Info {
	name := "openai/" + p.name
	f := p.cfg.Models.Find(name)
	return model.Info{Name: name, ContextWindow: f.Window, MaxOutput: f.MaxOutput}
}

// Chat asks the model.
func (p *Provider) Chat(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	r, err := p.request(req)
	if err != nil {
		return model.Response{}, err
	}
	header := http.Header{}
	if p.cfg.APIKey != "" {
		header.Set("Authorization", "Bearer "+p.cfg.APIKey)
	}
	at := model.Endpoint{
		Client: p.cfg.HTTPClient, URL: strings.TrimSuffix(p.cfg.BaseURL, "/") + "/chat/completions", Header: header,
		Idle: p.cfg.IdleTimeout, Clock: p.cfg.Clock, Fault: fault,
	}
	var a answer
	if err := at.Stream(ctx, r, func(m sse.Message) error { return p.take(&a, m.Data, sink) }); err != nil {
		return model.Response{}, err
	}
	return a.finish()
}

// take reads one event of the stream.
func (p *Provider) take(a *answer, data []byte, sink model.Sink) error {
	if bytes.HasPrefix(data, []byte("[DONE]")) {
		return model.ErrDone
	}
	if kind, message := fault(data); kind+message != "" {
		if kind == "" {
			kind = "server_error"
		}
		return model.FromStatus(http.StatusOK, nil, kind, message, p.cfg.Clock.Now())
	}
	var c chunk
	if len(data) > 0 {
		if err := json.Unmarshal(data, &c); err != nil {
			return model.NewError(model.Network, err, "the model's answer is garbled")
		}
	}
	a.add(c, sink)
	return nil
}
