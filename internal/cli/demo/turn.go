package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// turn is what came of a message to the agent.
type turn struct {
	answer   string // the agent's last text
	finished []event.ToolFinishedData
	started  int // tool calls that were started, counted by their events
}

// ask sends a message and follows the session until the turn is answered. at, if any, is called for each event.
func (s *story) ask(ctx context.Context, session, text string, at func(api.Event) error) (turn, error) {
	var t turn
	s.say("%s ← %s", session, text)
	sent, err := s.c.SendMessages(ctx, session, api.SendMessages{Messages: []api.Message{{Text: text}}})
	if err != nil {
		return t, err
	}
	if len(sent.Data) == 0 {
		return t, errdefs.New(errdefs.Internal, "demo_no_event", "the daemon took the message and told no event")
	}
	for item, err := range s.c.Events(ctx, session, sent.Data[0].Seq) {
		if err != nil {
			return t, err
		}
		if item.Event == nil {
			continue
		}
		done, err := t.take(s, session, *item.Event)
		if err == nil && at != nil {
			err = at(*item.Event)
		}
		if done || err != nil {
			return t, err
		}
	}
	return t, context.Cause(ctx)
}

// take notes an event and reports whether the turn is over.
func (t *turn) take(s *story, session string, ev api.Event) (bool, error) {
	switch event.Type(ev.Type) {
	case event.MessageAgent:
		d, err := payload[event.MessageAgentData](ev)
		if err != nil {
			return false, err
		}
		if d.Text != "" {
			t.answer = d.Text
			s.say("%s → %s", session, clip(strings.TrimSpace(d.Text)))
		}
	case event.ToolRequested:
		d, err := payload[event.ToolRequestedData](ev)
		if err != nil {
			return false, err
		}
		s.quote(fmt.Sprintf("▸ %s %s", d.Name, firstLine(d.Arguments)))
	case event.ToolStarted:
		t.started++
	case event.ToolFinished:
		d, err := payload[event.ToolFinishedData](ev)
		if err != nil {
			return false, err
		}
		if d.Outcome != event.OutcomeOK {
			return false, errdefs.New(errdefs.Internal, "demo_tool_failed", "a tool call of %s ended with %s: %s", session, d.Outcome, d.Output)
		}
		t.finished = append(t.finished, d)
	case event.SessionFailed:
		d, err := payload[event.SessionFailedData](ev)
		if err != nil {
			return false, err
		}
		return false, errdefs.New(errdefs.Internal, "demo_session_failed", "session %s failed: %s (%s)", session, d.Message, d.Code)
	case event.TurnFinished:
		d, err := payload[event.TurnFinishedData](ev)
		if err == nil && d.Reason != "answered" {
			err = errdefs.New(errdefs.Internal, "demo_turn_failed", "the turn of %s ended with %s", session, d.Reason)
		}
		return true, err
	}
	return false, nil
}

func payload[T any](ev api.Event) (T, error) {
	var v T
	err := json.Unmarshal(ev.Data, &v)
	return v, errdefs.Wrap(err, errdefs.Internal, "bad_event", "reading %s", ev.Type)
}

// firstLine is the first line of what a tool call runs.
func firstLine(args json.RawMessage) string {
	var a struct{ Code, Command string }
	if json.Unmarshal(args, &a) != nil {
		return string(args)
	}
	first, rest, more := strings.Cut(strings.TrimSpace(a.Code+a.Command), "\n")
	if more {
		return fmt.Sprintf("%s … (%d lines)", first, strings.Count(rest, "\n")+2)
	}
	return first
}

// exec runs a command that must succeed, and returns what it printed.
func (s *story) exec(ctx context.Context, session string, req api.StartExec) (string, error) {
	req.Output = true
	x, err := s.c.StartExec(ctx, session, req)
	if err != nil {
		return "", err
	}
	if x.ExitCode == nil || *x.ExitCode != 0 {
		return "", errdefs.New(errdefs.Internal, "demo_command_failed", "a command in %s failed (%s %s): %s%s", session, x.State, x.Cause, x.Stdout, x.Stderr)
	}
	return strings.TrimSpace(x.Stdout), nil
}

// python runs code in the interpreter that the agent uses, and decodes what it printed.
func (s *story) python(ctx context.Context, session, code string, into any) error {
	out, err := s.exec(ctx, session, api.StartExec{Kind: "python", Code: code})
	if err != nil {
		return err
	}
	return errdefs.Wrap(json.Unmarshal([]byte(out), into), errdefs.Internal, "demo_bad_output", "reading %q", out)
}

// read returns a small file of a workspace's home directory.
func (s *story) read(ctx context.Context, session, name string) (string, error) {
	r, err := s.c.ReadFile(ctx, session, s.home+"/"+name, 0, 1<<20)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}
