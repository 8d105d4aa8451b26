package session

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

func newList(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List sessions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), e) },
	}
}

func list(ctx context.Context, e *env.Env) error {
	read := func(c *client.Client) (api.List[api.Session], error) {
		return env.All(func(s api.Session) string { return s.ID }, func(p api.Page) (api.List[api.Session], error) { return c.Sessions(ctx, p) })
	}
	return env.Call(ctx, e, "", read, func(w io.Writer, all api.List[api.Session]) {
		var rows [][]string
		for _, s := range all.Data {
			rows = append(rows, []string{s.Name, s.Status, s.Workspace.State, dash(s.Model), env.Ago(s.CreatedAt), s.ID, env.OneLine(s.Goal, 40)})
		}
		env.Table(w, "NAME STATUS WORKSPACE MODEL AGE ID GOAL", rows)
	})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newShow(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "show S", Short: "Show a session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), e, args[0]) },
	}
}

func show(ctx context.Context, e *env.Env, name string) error {
	return env.Call(ctx, e, "", func(c *client.Client) (api.Session, error) { return c.Session(ctx, name) }, describe)
}

// describe writes a session for people.
func describe(w io.Writer, s api.Session) {
	line := func(name, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			fmt.Fprintf(w, "%-12s %s\n", name, env.Plain(text))
		}
	}
	line("name", "%s", s.Name)
	line("id", "%s", s.ID)
	line("status", "%s", s.Status)
	line("stopped", "%s", strings.TrimSuffix(s.StopReason+": "+s.StopMessage, ": "))
	for _, m := range s.Waiting {
		line("waiting", "%s (message %d)", env.OneLine(summary(m), 60), m.Seq)
	}
	line("goal", "%s", s.Goal)
	line("result", "%s", s.Result)
	line("model", "%s", s.Model)
	line("events", "%d", s.LastSeq)
	if s.Parent != nil {
		line("forked from", "%s@%s at %d", s.Parent.SessionID, s.Parent.CheckpointID, s.Parent.CutSeq)
	}
	line("workspace", "%s, %s on %s %s", s.Workspace.State, s.Workspace.Driver, s.Workspace.Image, s.Workspace.SandboxID)
	line("cause", "%s", s.Workspace.Cause)
	line("missing", "%s", strings.Join(s.Workspace.Missing, "; "))
	notIdle, idle := idleLines(s)
	line("not idle", "%s", notIdle)
	line("idle", "%s", idle)
	if s.Idle != (api.Idle{}) {
		line("when idle", "%s", idleText(s.Idle))
	}
	line("checkpoints", "%s", strings.Join(env.CheckpointText(s.Checkpoints), ", "))
	line("tokens", "%d in (%d cached), %d out, %d model calls", s.Usage.InputTokens, s.Usage.CachedTokens, s.Usage.OutputTokens, s.Usage.Steps)
	if s.Usage.CostMicros > 0 {
		line("cost", "$%.4f", float64(s.Usage.CostMicros)/1e6)
	}
	if r := s.ResumeReport; r != nil {
		line("resumed", "%s", resumeText(r))
	}
	line("created", "%s ago", env.Ago(s.CreatedAt))
}

// resumeText says what a resume brought back.
func resumeText(r *api.ResumeReport) string {
	text := fmt.Sprintf("%s in %d ms", strings.Join(r.Layers, ", "), r.DurationMS)
	if r.Processes > 0 {
		text += fmt.Sprintf("; %d processes", r.Processes)
	}
	if r.ClockStepMS > 0 {
		text += fmt.Sprintf("; slept %.1f s", float64(r.ClockStepMS)/1000)
	}
	if len(r.Reset) > 0 {
		text += "; reset: " + strings.Join(r.Reset, ", ")
	}
	if failed := failedHooks(r.Hooks); failed != "" {
		text += "; " + failed
	}
	if len(r.Lost) > 0 {
		text += "; lost: " + strings.Join(r.Lost, ", ")
	}
	for _, d := range r.Devolved {
		for _, c := range d.Commands {
			text += "; ran: " + commandText(c.Label, c.Argv, c.ExecID)
		}
	}
	return text
}
