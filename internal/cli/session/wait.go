package session

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

type waitOptions struct {
	e       *env.Env
	states  []string
	timeout time.Duration
}

func newWait(e *env.Env) *cobra.Command {
	o := &waitOptions{e: e}
	cmd := &cobra.Command{
		Use: "wait S --for STATE", Short: "Wait until a session is in a state", Args: cobra.ExactArgs(1),
		Long: "Wait until a session is in a state: a status (idle, running, finished, failed), a stop reason (answered, canceled, limit, …),\n" +
			"a state of its workspace (running, paused, suspended, stopped, lost), or done (no turn in progress). Of several, any ends the wait.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringSliceVar(&o.states, "for", []string{api.WaitDone}, "the state; may be given several times")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "give up after this time; exit code 6")
	return cmd
}

func (o *waitOptions) run(ctx context.Context, name string) error {
	if o.timeout < 0 {
		return env.Usage("the timeout is negative")
	}
	for _, s := range o.states {
		// The code of a failure is a stop reason too; it has an underscore.
		if !slices.Contains(api.States(), s) && !strings.Contains(s, "_") {
			return env.Usage("nothing is ever %q", s).WithHint("Use one of: %s.", strings.Join(api.States(), ", "))
		}
	}
	ask := func(c *client.Client) (api.Session, error) { return c.WaitSession(ctx, name, o.states, o.timeout) }
	return env.Call(ctx, o.e, "waiting for "+name+" to be "+strings.Join(o.states, " or "), ask, func(w io.Writer, s api.Session) {
		fmt.Fprintf(w, "%s is %s, its workspace %s\n", s.Name, s.Status, s.Workspace.State)
	})
}
