package scripted

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"text/template"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

// Constructor returns the constructor for a model.Registry: "scripted:FILE". The file is read anew for each Run of a session.
func Constructor(clk clock.Clock) model.Constructor {
	return func(_ context.Context, name string) (model.Provider, error) {
		s, err := Load(name)
		if err != nil {
			return nil, err
		}
		return New(s, clk), nil
	}
}

// Provider answers from a script.
type Provider struct {
	script *Script
	clk    clock.Clock

	mu     sync.Mutex  // guards failed
	failed map[int]int // line of a turn → how often it has failed on purpose
}

var _ model.Provider = (*Provider)(nil)

// New returns a provider for a script.
func New(s *Script, clk clock.Clock) *Provider {
	return &Provider{script: s, clk: clk, failed: map[int]int{}}
}

// Info returns the window that the script states.
func (p *Provider) Info() model.Info {
	return model.Info{Name: "scripted:" + p.script.file, ContextWindow: p.script.ContextWindow}
}

// Chat answers with the first turn that matches.
func (p *Provider) Chat(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	c := view(req.Messages)
	for _, t := range p.script.Turns {
		groups, ok := t.When.match(c)
		if !ok || p.exhausted(t) {
			continue
		}
		return p.play(ctx, t, c, groups, sink)
	}
	if p.script.Strict == nil || *p.script.Strict {
		return model.Response{}, model.NewError(model.BadRequest, nil, "%s: no turn matches %s", p.script.file, c.describe())
	}
	text := p.script.Default
	if text == "" {
		text = "(no turn of the script matches)"
	}
	sink.Send(model.Delta{Text: text})
	return model.Response{Text: text, Stop: model.StopEnd}, nil
}

// exhausted reports whether a turn that is nothing but failures has failed as often as it should, so that the next one that
// matches is to answer.
func (p *Provider) exhausted(t Turn) bool {
	if t.Fail == nil || t.Fail.Times == 0 || t.Text != "" || len(t.Calls) > 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[t.line] >= t.Fail.Times
}

func (p *Provider) play(ctx context.Context, t Turn, c conversation, groups map[string]string, sink model.Sink) (model.Response, error) {
	canceled := func(err error) error { return model.NewError(model.Canceled, err, "the model call was canceled") }
	if t.Delay > 0 {
		if err := p.clk.Sleep(ctx, t.Delay); err != nil {
			return model.Response{}, canceled(err)
		}
	}
	if err := p.fail(t); err != nil {
		return model.Response{}, err
	}
	fill := func(s string) (string, error) { return c.fill(s, groups) }
	wrong := func(err error) error {
		return model.NewError(model.BadRequest, err, "%s:%d: a template of the turn is wrong", p.script.file, t.line)
	}
	text, err := fill(t.Text)
	if err != nil {
		return model.Response{}, wrong(err)
	}
	if t.Thinking != "" {
		sink.Send(model.Delta{Thinking: t.Thinking})
	}
	for _, word := range strings.SplitAfter(text, " ") {
		if word == "" {
			continue
		}
		if t.PerChunk > 0 {
			if err := p.clk.Sleep(ctx, t.PerChunk); err != nil {
				return model.Response{}, canceled(err)
			}
		}
		sink.Send(model.Delta{Text: word})
	}
	var raw []model.RawCall
	for i, call := range t.Calls {
		args, err := call.arguments(fill)
		if err != nil {
			return model.Response{}, wrong(err)
		}
		id := call.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", c.step, i+1)
		}
		sink.Send(model.Delta{ToolName: call.Name})
		raw = append(raw, model.RawCall{ID: id, Name: call.Name, Arguments: args, Cut: call.Cut})
	}
	if ctx.Err() != nil {
		return model.Response{}, canceled(context.Cause(ctx))
	}
	r := model.Response{Text: text, ToolCalls: model.FinishCalls(raw), Stop: model.StopEnd, Usage: p.usage(t, c, text)}
	if len(raw) > 0 {
		r.Stop = model.StopTools
	}
	if t.Stop != "" {
		r.Stop = model.StopReason(t.Stop)
	}
	return r, nil
}

func (p *Provider) fail(t Turn) error {
	if t.Fail == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.Fail.Times > 0 && p.failed[t.line] >= t.Fail.Times {
		return nil
	}
	p.failed[t.line]++
	msg := t.Fail.Message
	if msg == "" {
		msg = "a failure that the script asks for"
	}
	e := model.NewError(t.Fail.Class, nil, "%s:%d: %s", p.script.file, t.line, msg)
	e.RetryAfter = t.Fail.RetryAfter
	return e
}

// usage is what the turn states, or an estimate at 4 bytes a token.
func (p *Provider) usage(t Turn, c conversation, text string) event.Usage {
	if t.Usage != (Usage{}) {
		return event.Usage{Input: t.Usage.Input, Output: t.Usage.Output, Cached: t.Usage.Cached}
	}
	return event.Usage{Input: c.bytes / 4, Output: int64(len(text))/4 + int64(len(t.Calls))*20 + 1}
}

// conversation is what rules and templates see of a request.
type conversation struct {
	step       int
	user       string
	result     string
	resultTool string
	last       model.Role
	texts      []string
	bytes      int64
}

func view(messages []model.Message) conversation {
	c := conversation{step: 1}
	names := map[string]string{}
	for _, m := range messages {
		c.bytes += int64(len(m.Text))
		c.last = m.Role
		switch m.Role {
		case model.System:
			continue
		case model.User:
			c.user = m.Text
		case model.Assistant:
			c.step++
			for _, call := range m.ToolCalls {
				names[call.CallID] = call.Name
			}
		case model.Tool:
			c.result, c.resultTool = m.Text, names[m.CallID]
		}
		c.texts = append(c.texts, m.Text)
	}
	return c
}

func (c conversation) describe() string {
	s := fmt.Sprintf("step %d, last message from %s, user message %q", c.step, c.last, short(c.user))
	if c.last == model.Tool {
		s += fmt.Sprintf(", result of %s %q", c.resultTool, short(c.result))
	}
	return s
}

func short(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// match reports whether all conditions hold, and the named groups of their regular expressions.
func (w When) match(c conversation) (map[string]string, bool) {
	groups := map[string]string{}
	if w.Step != 0 && w.Step != c.step || w.Last != "" && w.Last != string(c.last) || w.Tool != "" && (c.last != model.Tool || w.Tool != c.resultTool) {
		return nil, false
	}
	if w.User != nil && !w.User.match(c.user, groups) {
		return nil, false
	}
	if w.Result != nil && (c.last != model.Tool || !w.Result.match(c.result, groups)) {
		return nil, false
	}
	if w.Any != nil {
		for _, t := range c.texts {
			if w.Any.match(t, groups) {
				return groups, true
			}
		}
		return nil, false
	}
	return groups, true
}

func (m *Match) match(text string, groups map[string]string) bool {
	if m.Contains != "" && !strings.Contains(text, m.Contains) {
		return false
	}
	if m.Regex == nil {
		return true
	}
	found := m.Regex.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	for i, name := range m.Regex.SubexpNames() {
		groups[fmt.Sprint(i)] = found[i]
		if name != "" {
			groups[name] = found[i]
		}
	}
	return true
}

// fill runs a text through text/template: {{.User}}, {{.Result}}, {{.Step}}, {{.Match.NAME}}.
func (c conversation) fill(s string, groups map[string]string) (string, error) {
	if !strings.Contains(s, "{{") {
		return s, nil
	}
	t, err := template.New("").Option("missingkey=error").Parse(s)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, map[string]any{"User": c.user, "Result": c.result, "Step": c.step, "Match": groups})
	return b.String(), err
}
