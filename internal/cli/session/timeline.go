package session

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/ref"
)

func newTimeline(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "timeline S", Short: "Show what a session's model sees, and its checkpoints", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return timeline(cmd.Context(), e, args[0]) },
	}
}

func timeline(ctx context.Context, e *env.Env, name string) error {
	ask := func(c *client.Client) (api.Timeline, error) { return c.Timeline(ctx, name) }
	return env.Call(ctx, e, "", ask, func(w io.Writer, t api.Timeline) {
		for _, r := range t.Ranges {
			fmt.Fprintf(w, "  events %d–%d of %s\n", r.FromSeq, r.ToSeq, r.SessionID)
		}
		for _, r := range t.Abandoned {
			fmt.Fprintf(w, "  (left by rollback: %d–%d)\n", r.FromSeq, r.ToSeq)
		}
		for _, k := range t.Checkpoints {
			off := ""
			if !on(t, k) {
				off = " (off the timeline)"
			}
			fmt.Fprintf(w, "  ◆ %d  %s  %s  %s%s\n", k.Seq, k.ID, k.Kind, env.OneLine(k.Message, 60), off)
		}
	})
}

// on reports whether a checkpoint lies on the timeline.
func on(t api.Timeline, k api.Checkpoint) bool {
	for _, r := range t.Ranges {
		if r.SessionID == k.SessionID && k.Seq >= r.FromSeq && k.Seq <= r.ToSeq {
			return true
		}
	}
	return false
}

func newDiff(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "diff A B", Short: "Compare the files and transcripts of two sessions or checkpoints", Args: cobra.ExactArgs(2),
		Long: "Compare the files and transcripts of two sessions, or of checkpoints of them (S@CKPT), from their common point.",
		RunE: func(cmd *cobra.Command, args []string) error { return diff(cmd.Context(), e, args[0], args[1]) },
	}
}

func diff(ctx context.Context, e *env.Env, a, b string) error {
	for _, s := range []string{a, b} {
		if _, err := ref.ParsePoint(s); err != nil {
			return err
		}
	}
	return env.Call(ctx, e, "comparing", func(c *client.Client) (api.Diff, error) { return c.Diff(ctx, a, b) }, writeDiff)
}

func writeDiff(w io.Writer, d api.Diff) {
	mark := map[string]string{"added": "+", "removed": "-", "changed": "~"}
	for _, f := range d.Files {
		fmt.Fprintf(w, "%s %s  %s → %s\n", mark[f.Change], env.Plain(f.Path), env.Size(f.ASize), env.Size(f.BSize))
		if f.Text != "" {
			fmt.Fprintln(w, env.Plain(f.Text))
		}
	}
	if len(d.Files) == 0 {
		fmt.Fprintln(w, "the files are the same")
	}
	side := func(name string, events []api.Event) {
		fmt.Fprintf(w, "%s, after the common point:\n", name)
		for _, ev := range events {
			fmt.Fprintln(w, "  "+eventLine(ev))
		}
	}
	if len(d.Transcript.A)+len(d.Transcript.B) == 0 {
		fmt.Fprintln(w, "the transcripts are the same")
		return
	}
	side(d.A, d.Transcript.A)
	side(d.B, d.Transcript.B)
}
