package scripted_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/model/scripted"
)

func TestMatching(t *testing.T) {
	s, err := scripted.Parse("s.json", []byte(`{"strict": false, "default": "dunno", "turns": [
		{"when": {"result_tool": "run", "result": {"regex": "sum=(?P<n>[0-9]+)"}}, "text": "it is {{.Match.n}}"},
		{"when": {"user": "twice"}, "fail": {"class": "rate_limited", "times": 1, "retry_after": "3s"}},
		{"when": {"user": "twice"}, "text": "now"},
		{"when": {"step": 1, "user": "hi"}, "calls": [{"tool": "run", "args": {"command": "echo {{.User}}", "list": ["{{.Step}}", 2]}}], "usage": {"input": 5, "output": 2}}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := scripted.New(s, clock.System{})
	ask := func(m ...model.Message) (model.Response, error) {
		return p.Chat(t.Context(), model.Request{Messages: m}, nil)
	}
	user := func(text string) model.Message { return model.Message{Role: model.User, Text: text} }
	r, err := ask(user("hi"))
	if err != nil || len(r.ToolCalls) != 1 || string(r.ToolCalls[0].Arguments) != `{"command":"echo hi","list":["1",2]}` || r.Usage != (event.Usage{Input: 5, Output: 2}) {
		t.Errorf("%+v %v", r, err)
	}
	r, err = ask(user("hi"), model.Message{Role: model.Assistant, ToolCalls: r.ToolCalls}, model.Message{Role: model.Tool, CallID: r.ToolCalls[0].CallID, Text: "sum=42"})
	if err != nil || r.Text != "it is 42" {
		t.Errorf("%+v %v", r, err)
	}
	_, err = ask(user("twice"))
	if e := model.AsError(err); e == nil || e.Class != model.RateLimited || e.RetryAfter.Seconds() != 3 || !strings.Contains(e.Error(), "s.json:3:") {
		t.Errorf("%v", err)
	}
	if r, err = ask(user("twice")); err != nil || r.Text != "now" {
		t.Errorf("%+v %v", r, err)
	}
	if r, err = ask(user("else")); err != nil || r.Text != "dunno" {
		t.Errorf("%+v %v", r, err)
	}
}

func TestBadScripts(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "no turns",
		"turns: []":                      "no turns",
		"turnz: []":                      "turnz",
		"turns:\n  - {}":                 "line 2",
		"turns:\n  - {txt: a}":           "txt",
		"turns:\n  - {calls: [{id: x}]}": "needs a tool",
		"turns: [{fail: {class: oops}}]": "oops",
		"turns: [{text: a, when: {user: {regex: '('}}}]": "missing closing",
		"{": "s.yaml",
	} {
		_, err := scripted.Parse("s.yaml", []byte(text))
		if errdefs.CodeOf(err) != "script_invalid" || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := scripted.Load(filepath.Join(t.TempDir(), "none.yaml"))
	if errdefs.CodeOf(err) != "script_not_found" {
		t.Errorf("%v", err)
	}
}

// TestScriptsThatNeverEnd names files that would be read for ever, or until memory is full.
func TestScriptsThatNeverEnd(t *testing.T) {
	fifo, large := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "large")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/dev/zero", fifo, large, t.TempDir()} {
		if _, err := scripted.Load(file); errdefs.CodeOf(err) != "script_invalid" {
			t.Errorf("%s: %v", file, err)
		}
	}
}
