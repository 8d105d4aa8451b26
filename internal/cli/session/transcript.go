package session

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/cli/env"
)

func newTranscript(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "transcript S", Short: "Read what was said and done in a session", Args: cobra.ExactArgs(1),
		Long: "Read what was said and done on a session's timeline, a fork's from its parent's beginning, as run and send show it while it happens.\n" +
			"What rollbacks took off the timeline is not in it. With --json: the timeline's events.",
		RunE: func(cmd *cobra.Command, args []string) error { return showTranscript(cmd.Context(), e, args[0]) },
	}
}

func showTranscript(ctx context.Context, e *env.Env, name string) error {
	c, err := e.Client(ctx)
	if err != nil {
		return err
	}
	all := api.List[api.Event]{Data: []api.Event{}}
	t := &transcript{e: e, client: c, past: true}
	for after, more := "", true; more; {
		part, err := c.TimelineEvents(ctx, name, after, api.MaxLimit)
		if err != nil {
			return err
		}
		for _, ev := range part.Data {
			after = ev.ID
			if e.JSON {
				all.Data = append(all.Data, ev)
			} else {
				t.event(ctx, ev)
			}
		}
		more = part.HasMore
	}
	if e.JSON {
		return e.PrintJSON(all)
	}
	if !t.wrote {
		fmt.Fprintf(e.Out, "nothing has been said in %s\n", name)
	}
	return nil
}
