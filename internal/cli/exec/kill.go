package exec

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

type killOptions struct {
	e      *env.Env
	signal string
}

func newKill(e *env.Env) *cobra.Command {
	o := &killOptions{e: e}
	cmd := &cobra.Command{
		Use: "kill S EXEC...", Short: "Send a signal to commands of a workspace", Args: cobra.MinimumNArgs(2),
		Long: "Send a signal to commands, named by their ids (perdure ps S --execs), and to all that they started. Code in an interpreter is interrupted by\n" +
			"INT; TERM and KILL end the interpreter too if it does not follow, and its variables are gone.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0], args[1:]) },
	}
	cmd.Flags().StringVarP(&o.signal, "signal", "s", "TERM", "its name or number")
	return cmd
}

func (o *killOptions) run(ctx context.Context, session string, execs []string) error {
	for _, id := range execs {
		ask := func(c *client.Client) (api.Exec, error) {
			if err := c.SignalExec(ctx, session, id, o.signal); err != nil {
				return api.Exec{}, err
			}
			return c.Exec(ctx, session, id)
		}
		err := env.Call(ctx, o.e, "", ask, func(w io.Writer, x api.Exec) { fmt.Fprintf(w, "%s: sent %s\n", x.ID, o.signal) })
		if err != nil {
			return err
		}
	}
	return nil
}
