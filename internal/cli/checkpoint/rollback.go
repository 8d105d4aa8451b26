package checkpoint

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/ref"
)

type forkOptions struct {
	e   *env.Env
	req api.ForkSession
}

func newFork(e *env.Env) *cobra.Command {
	o := &forkOptions{e: e}
	cmd := &cobra.Command{
		Use: "fork S[@CKPT]", Short: "Make sessions that start from a checkpoint of another", Args: cobra.ExactArgs(1),
		Long: "Make sessions that start from a checkpoint of another, named by id or message; without one, from its present state, and it runs on.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().IntVarP(&o.req.Count, "count", "n", 1, "how many")
	cmd.Flags().StringVar(&o.req.Name, "name", "", "their name; with -n above 1, -1, -2, … are added")
	return cmd
}

func (o *forkOptions) run(ctx context.Context, arg string) error {
	if o.req.Count < 1 {
		return env.Usage("-n must be at least 1")
	}
	p, err := ref.ParsePoint(arg)
	if err != nil {
		return err
	}
	o.req.Checkpoint = p.Checkpoint
	ask := func(c *client.Client) (api.List[api.Session], error) { return c.ForkSession(ctx, p.Session, o.req) }
	return env.Call(ctx, o.e, fmt.Sprintf("forking %s ×%d", p, o.req.Count), ask, func(w io.Writer, forks api.List[api.Session]) {
		for _, s := range forks.Data {
			fmt.Fprintf(w, "%s\t%s\n", s.Name, s.ID)
		}
	})
}

type rollbackOptions struct {
	e   *env.Env
	req api.RollbackSession
}

func newRollback(e *env.Env) *cobra.Command {
	o := &rollbackOptions{e: e}
	cmd := &cobra.Command{
		Use: "rollback S CKPT", Short: "Bring a session back to one of its checkpoints", Args: cobra.RangeArgs(1, 2),
		Long: "Bring a session's files, processes and transcript back to a checkpoint, named by id or message. perdure undo S reverses it.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVar(&o.req.DryRun, "dry-run", false, "only say what would change")
	return cmd
}

func (o *rollbackOptions) run(ctx context.Context, args []string) error {
	p, err := ref.ParsePoint(args[0])
	if err != nil {
		return err
	}
	if len(args) == 2 {
		if p.Checkpoint != "" {
			return env.Usage("the checkpoint is given twice")
		}
		p.Checkpoint = args[1]
	}
	if p.Checkpoint == "" {
		return env.Usage("no checkpoint is given").WithHint("List them with: perdure checkpoints %s", p.Session)
	}
	o.req.Checkpoint = p.Checkpoint
	ask := func(c *client.Client) (api.RollbackPlan, error) { return c.RollbackSession(ctx, p.Session, o.req) }
	return env.Call(ctx, o.e, "rolling "+p.Session+" back", ask, planOf(p.Session))
}

func newUndo(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "undo S", Short: "Go back to before the last rollback", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			ask := func(c *client.Client) (api.RollbackPlan, error) { return c.UndoSession(ctx, args[0]) }
			return env.Call(ctx, e, "undoing the rollback of "+args[0], ask, planOf(args[0]))
		},
	}
}

// planOf writes what a rollback of the named session changes, for people.
func planOf(session string) func(io.Writer, api.RollbackPlan) {
	return func(w io.Writer, p api.RollbackPlan) { writePlan(w, session, p) }
}

func writePlan(w io.Writer, session string, p api.RollbackPlan) {
	verb := "back at"
	if p.DryRun {
		verb = "would go back to"
	}
	fmt.Fprintf(w, "%s %s (event %d)\n", verb, p.CheckpointID, p.CutSeq)
	fmt.Fprintf(w, "  %d events leave the timeline, none leaves the log\n", p.Events)
	for _, f := range p.Files {
		fmt.Fprintf(w, "  %s %s\n", f.Change, env.Plain(f.Path))
	}
	for _, x := range p.ProcessesGone {
		fmt.Fprintf(w, "  process %d ends: %s\n", x.PID, env.OneLine(strings.Join(x.Args, " "), 80))
	}
	if p.ProcessesBack {
		fmt.Fprintln(w, "  the checkpoint's processes and RAM come back")
	}
	for _, s := range p.Stays {
		fmt.Fprintf(w, "  stays: %s\n", s)
	}
	if p.UndoCheckpointID != "" {
		fmt.Fprintf(w, "  undo with: perdure undo %s (to %s)\n", session, p.UndoCheckpointID)
	}
}
