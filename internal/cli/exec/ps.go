package exec

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

type psOptions struct {
	e     *env.Env
	execs bool
}

func newProcesses(e *env.Env) *cobra.Command {
	o := &psOptions{e: e}
	cmd := &cobra.Command{
		Use: "ps S", Short: "List the processes of a workspace", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&o.execs, "execs", false, "list the commands that were started instead, ended ones too")
	return cmd
}

func (o *psOptions) run(ctx context.Context, session string) error {
	if o.execs {
		read := func(c *client.Client) (api.List[api.Exec], error) {
			return env.All(func(x api.Exec) string { return x.ID }, func(p api.Page) (api.List[api.Exec], error) { return c.Execs(ctx, session, p) })
		}
		return env.Call(ctx, o.e, "", read, func(w io.Writer, list api.List[api.Exec]) {
			var rows [][]string
			for _, x := range list.Data {
				rows = append(rows, []string{x.ID, x.State, codeText(x), env.Ago(x.StartedAt), strings.Join(x.Argv, " ") + x.Code})
			}
			env.Table(w, "ID STATE EXIT AGE COMMAND", rows)
		})
	}
	ask := func(c *client.Client) (api.List[api.Process], error) { return c.Processes(ctx, session) }
	return env.Call(ctx, o.e, "", ask, func(w io.Writer, list api.List[api.Process]) {
		var rows [][]string
		for _, p := range list.Data {
			rows = append(rows, []string{strconv.Itoa(p.PID), strconv.Itoa(p.PPID), p.State, env.Size(p.RSSBytes), p.ExecID, strings.Join(p.Args, " ")})
		}
		env.Table(w, "PID PPID STATE RSS EXEC COMMAND", rows)
	})
}

func codeText(x api.Exec) string {
	switch {
	case x.ExitCode != nil:
		return strconv.Itoa(*x.ExitCode)
	case x.Signal != "":
		return x.Signal
	}
	return "-"
}
