package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// transcript writes a session's work for people, as it happens or as it was.
type transcript struct {
	e       *env.Env
	client  *client.Client
	session string
	past    bool   // nothing of it happens now
	running *live  // the tool's command that runs, if any
	failure string // of the model, as told last
	// background: the call requested last is to return at once, and its command goes on.
	requested  string
	background bool

	mu        sync.Mutex // guards what is below, and orders what is written
	streaming bool       // deltas of an answer are on the screen, and its line is open
	wrote     bool       // something has been written
}

const (
	shownLines = 8   // of a tool's result, unless its command was shown as it ran
	shownWidth = 160 // characters of a line
)

// delta shows a piece of an answer on a terminal. Elsewhere the finished answer is enough.
func (t *transcript) delta(d api.Delta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.e.Terminal.Out() && d.Kind == "text" {
		fmt.Fprint(t.e.Out, env.Plain(d.Text))
		t.streaming = true
	}
}

func (t *transcript) event(ctx context.Context, ev api.Event) {
	switch event.Type(ev.Type) {
	case event.MessageAgent:
		t.failure = ""
		t.answer(payload[event.MessageAgentData](ev).Text)
	case event.ModelFailed:
		t.modelFailed(ev)
	case event.SessionCreated:
		if d := payload[event.SessionCreatedData](ev); t.past && d.Goal != "" && d.Fork == nil {
			t.line("> %s", d.Goal)
		}
	case event.MessageUser:
		t.line("> %s", summary(ev))
	case event.ToolRequested:
		t.line("▸ %s", summary(ev))
		args := struct{ Background bool }{}
		_ = json.Unmarshal(payload[event.ToolRequestedData](ev).Arguments, &args) // what does not fit is not in the background
		t.requested = ev.ID
		t.background = args.Background
	case event.ToolStarted:
		if d := payload[event.ToolStartedData](ev); d.ExecID != "" && !t.past && !(t.background && t.requested == ev.CausationID) {
			t.stop()
			t.running = t.watch(ctx, t.client, t.session, string(d.ExecID))
		}
	case event.ToolFinished:
		t.finished(payload[event.ToolFinishedData](ev), t.running)
		t.running = nil
	case event.ContextTrimmed, event.LimitWarned, event.LimitReached, event.CheckpointCreated, event.CheckpointFailed, event.CheckpointMissed, event.SessionRolledBack,
		event.WorkspaceLost, event.WorkspaceSuspended, event.WorkspaceStopped, event.WorkspaceResumed, event.WorkspaceDevolved:
		t.line("· %s %s", ev.Type, summary(ev))
	}
}

func (t *transcript) line(format string, args ...any) { t.write("", fmt.Sprintf(format, args...)) }

// part is a line of what belongs to the line above it.
func (t *transcript) part(format string, args ...any) { t.write("  ", fmt.Sprintf(format, args...)) }

func (t *transcript) write(indent, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streaming {
		fmt.Fprintln(t.e.Out)
		t.streaming = false
	}
	fmt.Fprintln(t.e.Out, indent+env.OneLine(text, shownWidth))
	t.wrote = true
}

// answer shows an answer, unless its pieces are on the screen already.
func (t *transcript) answer(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.streaming:
		fmt.Fprintln(t.e.Out)
	case text != "":
		fmt.Fprintln(t.e.Out, env.Plain(text))
		t.wrote = true
	}
	t.streaming = false
}

// stop ends showing a command.
func (t *transcript) stop() {
	if t.running != nil {
		t.running.cancel()
		<-t.running.done
		t.running = nil
	}
}

// follow shows a session's events after a seq until no turn is in progress, and returns the session as it is then.
func follow(ctx context.Context, e *env.Env, c *client.Client, name string, after uint64) (api.Session, error) {
	t := &transcript{e: e, client: c, session: name}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer t.stop()
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
			t.event(ctx, *item.Event)
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
