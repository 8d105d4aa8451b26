package session

import (
	"context"
	"fmt"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// transcript writes a session's work for people, as it happens.
type transcript struct {
	e         *env.Env
	streaming bool // deltas of an answer are on the screen, and its line is open
}

const (
	shownLines = 8   // of a tool's output
	shownWidth = 160 // characters of a line
)

// delta shows a piece of an answer on a terminal. Elsewhere the finished answer is enough.
func (t *transcript) delta(d api.Delta) {
	if t.e.Terminal.Out() && d.Kind == "text" {
		fmt.Fprint(t.e.Out, env.Plain(d.Text))
		t.streaming = true
	}
}

func (t *transcript) event(ev api.Event) {
	switch event.Type(ev.Type) {
	case event.MessageAgent:
		d := payload[event.MessageAgentData](ev)
		switch {
		case t.streaming:
			fmt.Fprintln(t.e.Out)
		case d.Text != "":
			fmt.Fprintln(t.e.Out, env.Plain(d.Text))
		}
		t.streaming = false
		return
	case event.ModelFailed:
		d := payload[event.ModelFailedData](ev)
		t.line("! model: %s (%s)", d.Message, d.Code)
	case event.MessageUser:
		t.line("> %s", summary(ev))
	case event.ToolRequested:
		t.line("▸ %s", summary(ev))
	case event.ToolFinished:
		d := payload[event.ToolFinishedData](ev)
		t.output(d)
	case event.ContextTrimmed, event.LimitWarned, event.LimitReached, event.CheckpointCreated, event.CheckpointFailed, event.SessionRolledBack,
		event.WorkspaceLost, event.WorkspaceSuspended, event.WorkspaceStopped, event.WorkspaceResumed:
		t.line("· %s %s", ev.Type, summary(ev))
	}
}

func (t *transcript) line(format string, args ...any) {
	if t.streaming {
		fmt.Fprintln(t.e.Out)
		t.streaming = false
	}
	fmt.Fprintln(t.e.Out, env.OneLine(fmt.Sprintf(format, args...), shownWidth))
}

// output shows the beginning of a tool's result, indented.
func (t *transcript) output(d event.ToolFinishedData) {
	if d.Outcome != event.OutcomeOK {
		t.line("  %s", d.Outcome)
	}
	lines := strings.Split(strings.TrimSpace(d.Output), "\n")
	for i, l := range lines {
		if i == shownLines {
			fmt.Fprintf(t.e.Out, "  … %d more lines\n", len(lines)-i)
			return
		}
		if l != "" {
			fmt.Fprintln(t.e.Out, "  "+env.OneLine(l, shownWidth))
		}
	}
}

// follow shows a session's events after a seq until no turn is in progress, and returns the session as it is then.
func follow(ctx context.Context, e *env.Env, c *client.Client, name string, after uint64) (api.Session, error) {
	t := &transcript{e: e}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for item, err := range c.Events(ctx, name, after) {
		switch {
		case err != nil:
			return api.Session{}, err
		case item.Delta != nil:
			if !e.JSON {
				t.delta(*item.Delta)
			}
			continue
		case item.Event == nil:
			continue
		}
		if !e.JSON {
			t.event(*item.Event)
		}
		switch event.Type(item.Event.Type) {
		case event.TurnFinished, event.SessionFinished, event.SessionFailed:
			s, err := c.Session(ctx, name)
			if err != nil || s.Status != api.StatusRunning {
				return s, err
			}
		}
	}
	return api.Session{}, errdefs.Wrap(context.Cause(ctx), errdefs.Unavailable, "canceled", "following %s", name)
}

// outcome is the exit of a command that followed a turn to its end.
func outcome(e *env.Env, s api.Session) error {
	switch {
	case s.Status == api.StatusFailed:
	case s.StopReason == "answered", s.StopReason == "finished", s.StopReason == "":
		return nil
	}
	if !e.JSON {
		e.Note("perdure: %s stopped: %s", s.Name, strings.TrimSuffix(s.StopReason+": "+s.StopMessage, ": "))
	}
	return &env.Exit{Code: errdefs.Internal.ExitCode()}
}
