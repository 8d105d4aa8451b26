package session

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/cli/env"
)

type runOptions struct {
	e      *env.Env
	spec   specFlags
	detach bool
}

func newRun(e *env.Env) *cobra.Command {
	o := &runOptions{e: e}
	cmd := &cobra.Command{
		Use: "run GOAL", Short: "Make a session, give it a goal and follow it", Args: cobra.ExactArgs(1),
		Long: "Make a session, give it a goal and follow it until its turn ends. Leaving (^C) ends nothing: see events, send and cancel.\n" +
			"The exit code is 0 if the goal was answered, 1 if the turn failed, reached a limit or was canceled.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.spec.goal = args[0]
			return o.run(cmd.Context())
		},
	}
	o.spec.add(cmd.Flags())
	cmd.Flags().StringVar(&o.spec.name, "name", "", "the session's name")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "return at once")
	return cmd
}

func (o *runOptions) run(ctx context.Context) error {
	if o.spec.goal == "" {
		return env.Usage("the goal is empty")
	}
	req, err := o.spec.request(o.e)
	if err != nil {
		return err
	}
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	s, err := env.Progress(o.e, starting, func() (api.Session, error) { return c.CreateSession(ctx, req) })
	if err != nil {
		return err
	}
	if o.detach {
		return o.e.Print(s, func(w io.Writer) { fmt.Fprintf(w, "%s\t%s\n", s.Name, s.ID) })
	}
	if !o.e.JSON {
		o.e.Note("session %s (%s)", s.Name, s.ID)
		noteMissing(o.e, s)
	}
	s, err = follow(ctx, o.e, c, s.ID, 0)
	if err != nil {
		return err
	}
	if o.e.JSON {
		if err := o.e.PrintJSON(s); err != nil {
			return err
		}
	}
	return outcome(o.e, s)
}
