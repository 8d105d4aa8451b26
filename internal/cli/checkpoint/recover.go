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
)

type recoverOptions struct {
	e   *env.Env
	req api.RecoverSession
}

func newRecover(e *env.Env) *cobra.Command {
	o := &recoverOptions{e: e}
	cmd := &cobra.Command{
		Use: "recover S", Short: "Bring a damaged or lost session to the newest state that verifies", Args: cobra.ExactArgs(1),
		Long: "Bring a session that cannot be resumed to its newest checkpoint that verifies in full; if there is none, to the newest files that do, or else to\n" +
			"its transcript over an empty workspace. It says what was passed over, why, and what is lost. The log keeps everything.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&o.req.From, "from", "", "only this checkpoint, by id or message")
	cmd.Flags().BoolVar(&o.req.DryRun, "dry-run", false, "only say what would be done")
	return cmd
}

func (o *recoverOptions) run(ctx context.Context, session string) error {
	ask := func(c *client.Client) (api.RecoverReport, error) { return c.RecoverSession(ctx, session, o.req) }
	return env.Call(ctx, o.e, "recovering "+session, ask, func(w io.Writer, r api.RecoverReport) { writeRecovery(w, session, r) })
}

func writeRecovery(w io.Writer, session string, r api.RecoverReport) {
	verb, what := "recovered", strings.Join(r.Layers, ", ")
	if r.DryRun {
		verb = "would recover"
	}
	if r.CheckpointID != "" {
		what += " of " + r.CheckpointID
	}
	fmt.Fprintf(w, "%s %s: %s\n", verb, session, what)
	for _, s := range r.Skipped {
		name := s.CheckpointID
		if s.Message != "" {
			name += " (" + env.OneLine(s.Message, 40) + ")"
		}
		fmt.Fprintf(w, "  passed over %s: %s (%s)\n", name, env.Plain(s.Detail), s.Code)
	}
	if r.CutSeq > 0 {
		fmt.Fprintf(w, "  the timeline goes back to event %d: %d events leave it, %d of them messages; none leaves the log\n", r.CutSeq, r.Events, len(r.Messages))
	} else {
		fmt.Fprintln(w, "  the timeline stays as it is")
	}
	for _, l := range r.Lost {
		fmt.Fprintf(w, "  lost: %s\n", env.Plain(l))
	}
	if r.UndoCheckpointID != "" {
		fmt.Fprintf(w, "  what was left of the state before is kept in %s\n", r.UndoCheckpointID)
	}
}
