package session

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

type eventsOptions struct {
	e      *env.Env
	follow bool
	after  uint64
	limit  int
}

func newEvents(e *env.Env) *cobra.Command {
	o := &eventsOptions{e: e}
	cmd := &cobra.Command{
		Use: "events S", Short: "List a session's events, or follow them", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on with events as they happen; with --json one object per line")
	cmd.Flags().Uint64Var(&o.after, "after", 0, "start after this seq")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "list at most so many; 0: all")
	return cmd
}

func (o *eventsOptions) run(ctx context.Context, name string) error {
	if o.follow && o.limit > 0 {
		return env.Usage("--limit does not go with --follow")
	}
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	if o.follow {
		return o.tail(ctx, c, name)
	}
	return o.list(ctx, c, name)
}

func (o *eventsOptions) tail(ctx context.Context, c *client.Client, name string) error {
	for item, err := range c.Events(ctx, name, o.after) {
		if err != nil {
			return err
		}
		if item.Event == nil {
			continue
		}
		if o.e.JSON {
			err = o.e.PrintLine(item.Event)
		} else {
			_, err = fmt.Fprintln(o.e.Out, eventLine(*item.Event))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *eventsOptions) list(ctx context.Context, c *client.Client, name string) error {
	all := api.List[api.Event]{}
	after := o.after
	for {
		n := api.MaxLimit
		if o.limit > 0 {
			n = min(n, o.limit-len(all.Data))
		}
		part, err := c.ListEvents(ctx, name, after, n)
		if err != nil {
			return err
		}
		all.Data = append(all.Data, part.Data...)
		all.HasMore = part.HasMore
		if !part.HasMore || len(part.Data) == 0 || o.limit > 0 && len(all.Data) >= o.limit {
			break
		}
		after = part.Data[len(part.Data)-1].Seq
	}
	return o.e.Print(all, func(w io.Writer) {
		for _, ev := range all.Data {
			fmt.Fprintln(w, eventLine(ev))
		}
	})
}

// eventLine is an event on one line.
func eventLine(ev api.Event) string {
	return fmt.Sprintf("%5d  %s  %-20s %s", ev.Seq, ev.CreatedAt.Local().Format(time.TimeOnly), ev.Type, env.OneLine(summary(ev), 140))
}
