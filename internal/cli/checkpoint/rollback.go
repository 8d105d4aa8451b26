package checkpoint

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
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
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	forks, err := env.Progress(o.e, fmt.Sprintf("forking %s ×%d", p, o.req.Count), func() (api.List[api.Session], error) {
		return c.ForkSession(ctx, p.Session, o.req)
	})
	if err != nil {
		return err
	}
	return o.e.Print(forks, func(w io.Writer) {
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
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	plan, err := env.Progress(o.e, "rolling "+p.Session+" back", func() (api.RollbackPlan, error) { return c.RollbackSession(ctx, p.Session, o.req) })
	if err != nil {
		return err
	}
	return o.e.Print(plan, func(w io.Writer) { writePlan(w, plan) })
}

func newUndo(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "undo S", Short: "Go back to before the last rollback", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := e.Client(ctx)
			if err != nil {
				return err
			}
			plan, err := env.Progress(e, "undoing the rollback of "+args[0], func() (api.RollbackPlan, error) { return c.UndoSession(ctx, args[0]) })
			if err != nil {
				return err
			}
			return e.Print(plan, func(w io.Writer) { writePlan(w, plan) })
		},
	}
}

// writePlan says what a rollback changes, for people.
func writePlan(w io.Writer, p api.RollbackPlan) {
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
		fmt.Fprintf(w, "  undo with: perdure undo (to %s)\n", p.UndoCheckpointID)
	}
}
