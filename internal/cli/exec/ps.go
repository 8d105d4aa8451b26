package exec

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
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
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	if o.execs {
		list, err := c.Execs(ctx, session, api.Page{Limit: api.MaxLimit})
		if err != nil {
			return err
		}
		return o.e.Print(list, func(w io.Writer) {
			var rows [][]string
			for _, x := range list.Data {
				rows = append(rows, []string{x.ID, x.State, codeText(x), env.Ago(x.StartedAt), strings.Join(x.Argv, " ") + x.Code})
			}
			env.Table(w, "ID STATE EXIT AGE COMMAND", rows)
		})
	}
	list, err := c.Processes(ctx, session)
	if err != nil {
		return err
	}
	return o.e.Print(list, func(w io.Writer) {
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
