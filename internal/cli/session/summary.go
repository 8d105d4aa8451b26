package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/event"
)

// summary says what an event is about, for people. Events that it does not know show their data.
func summary(ev api.Event) string {
	switch event.Type(ev.Type) {
	case event.SessionCreated:
		d := payload[event.SessionCreatedData](ev)
		if d.Fork != nil {
			return fmt.Sprintf("%s, forked from %s at %d", d.Name, d.Fork.ParentID, d.Fork.CutSeq)
		}
		return strings.TrimSuffix(d.Name+": "+d.Goal, ": ")
	case event.SessionFinished:
		return payload[event.SessionFinishedData](ev).Result
	case event.SessionFailed:
		d := payload[event.SessionFailedData](ev)
		return d.Message + " (" + d.Code + ")"
	case event.SessionRolledBack:
		d := payload[event.SessionRolledBackData](ev)
		return fmt.Sprintf("to %s at %d; undo with %s", d.CheckpointID, d.CutSeq, d.UndoCheckpointID)
	case event.MessageUser:
		return payload[event.MessageUserData](ev).Text
	case event.MessageAgent:
		d := payload[event.MessageAgentData](ev)
		var calls []string
		for _, c := range d.ToolCalls {
			calls = append(calls, c.Name)
		}
		if len(calls) > 0 {
			return strings.TrimSpace(d.Text + " → " + strings.Join(calls, ", "))
		}
		return d.Text
	case event.ToolRequested:
		return callText(payload[event.ToolRequestedData](ev).ToolCall)
	case event.ToolFinished:
		d := payload[event.ToolFinishedData](ev)
		return fmt.Sprintf("%s: %s", d.Outcome, d.Output)
	case event.ExecStarted:
		d := payload[event.ExecStartedData](ev)
		return fmt.Sprintf("%s: %s", d.ExecID, strings.Join(d.Argv, " "))
	case event.ExecFinished:
		d := payload[event.ExecFinishedData](ev)
		if d.ExitCode != nil {
			return fmt.Sprintf("%s: exit %d", d.ExecID, *d.ExitCode)
		}
		return fmt.Sprintf("%s: %s %s", d.ExecID, d.Signal, d.Cause)
	case event.CheckpointCreated:
		d := payload[event.CheckpointCreatedData](ev)
		return fmt.Sprintf("%s %s %s", d.CheckpointID, d.Kind, d.Message)
	case event.TurnFinished:
		return payload[event.TurnFinishedData](ev).Reason
	case event.ModelRequested:
		d := payload[event.ModelRequestedData](ev)
		if d.Attempt > 1 {
			return fmt.Sprintf("%s, %d messages, attempt %d", d.Model, d.Messages, d.Attempt)
		}
		return fmt.Sprintf("%s, %d messages", d.Model, d.Messages)
	case event.ModelResponded:
		d := payload[event.ModelRespondedData](ev)
		return fmt.Sprintf("%s; %d tokens in, %d out", d.StopReason, d.Usage.Input, d.Usage.Output)
	case event.ModelFailed:
		d := payload[event.ModelFailedData](ev)
		return d.Message + " (" + d.Code + ")"
	case event.LimitWarned, event.LimitReached:
		d := payload[event.LimitData](ev)
		if strings.HasSuffix(d.Limit, "_ns") {
			return fmt.Sprintf("%s: %s of %s", strings.TrimSuffix(d.Limit, "_ns"), time.Duration(d.Used).Round(time.Millisecond), time.Duration(d.Max))
		}
		return fmt.Sprintf("%s: %d of %d", d.Limit, d.Used, d.Max)
	}
	return workspaceSummary(ev)
}

func workspaceSummary(ev api.Event) string {
	switch event.Type(ev.Type) {
	case event.CheckpointDurable:
		return string(payload[event.CheckpointDurableData](ev).CheckpointID)
	case event.CheckpointFailed:
		d := payload[event.CheckpointFailedData](ev)
		return fmt.Sprintf("%s: %s (%s)", d.CheckpointID, d.Message, d.Code)
	case event.CheckpointMissed:
		d := payload[event.CheckpointMissedData](ev)
		return fmt.Sprintf("%s: %s (%s)", d.Kind, d.Message, d.Code)
	case event.CheckpointDeleted:
		d := payload[event.CheckpointDeletedData](ev)
		return fmt.Sprintf("%s (%s)", d.CheckpointID, d.Reason)
	case event.WorkspaceStarted:
		d := payload[event.WorkspaceStartedData](ev)
		if len(d.Missing) > 0 {
			return d.Driver + ", without " + strings.Join(d.Missing, "; ")
		}
		return d.Driver
	case event.WorkspaceResumed:
		r := payload[event.WorkspaceResumedData](ev).Report
		text := fmt.Sprintf("%s in %d ms", strings.Join(r.Layers, ", "), r.DurationMS)
		if len(r.Lost) > 0 {
			text += "; lost: " + strings.Join(r.Lost, ", ")
		}
		return text
	case event.SessionImported:
		d := payload[event.SessionImportedData](ev)
		text := fmt.Sprintf("%s, cut at %d, without memory", d.SessionID, d.CutSeq)
		if d.Memory {
			text = fmt.Sprintf("%s, cut at %d, with memory", d.SessionID, d.CutSeq)
		}
		return text
	case event.WorkspaceDevolved:
		d := payload[event.WorkspaceDevolvedData](ev)
		text := fmt.Sprintf("without %s: %s (%s)", d.Layer, d.Reason, d.Code)
		for _, c := range d.Commands {
			text += "; ran: " + commandText(c.Label, c.Argv, string(c.ExecID))
		}
		return text
	case event.WorkspaceLost:
		return payload[event.WorkspaceLostData](ev).Cause
	case event.WorkspacePaused, event.WorkspaceUnpaused:
		return payload[event.WorkspacePausedData](ev).Reason
	case event.WorkspaceSuspended, event.WorkspaceStopped:
		d := payload[event.WorkspaceSuspendedData](ev)
		text := strings.TrimSuffix(string(d.CheckpointID)+", "+d.Reason, ", ")
		for _, h := range d.Hooks {
			if h.ExitCode == nil || *h.ExitCode != 0 {
				text += fmt.Sprintf("; hook %s failed", strings.TrimSpace(h.Occasion+" "+h.Name))
			}
		}
		return text
	}
	return string(ev.Data)
}

// commandText names a command: by its label, what it ran, or its id.
func commandText(label string, argv []string, id string) string {
	if label != "" {
		return label
	}
	if len(argv) > 0 {
		return env.OneLine(strings.Join(argv, " "), 80)
	}
	return id
}

// callText shows a tool call as its name and its most telling argument.
func callText(c event.ToolCall) string {
	args := map[string]any{}
	if json.Unmarshal(c.Arguments, &args) == nil {
		for _, key := range []string{"command", "code", "path", "message", "result"} {
			if v, ok := args[key].(string); ok && v != "" {
				return c.Name + ": " + v
			}
		}
	}
	if len(args) == 0 {
		return c.Name
	}
	return c.Name + " " + string(c.Arguments)
}

// payload reads an event's data. What does not fit is left zero: a summary is no place to fail.
func payload[T any](ev api.Event) T {
	var d T
	_ = json.Unmarshal(ev.Data, &d)
	return d
}
