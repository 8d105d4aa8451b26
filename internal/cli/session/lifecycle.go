package session

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

// move is a verb that brings a session's workspace into another state.
type move struct {
	use, short, doing string
	call              func(*client.Client, context.Context, string) (api.Session, error)
}

// Lifecycle are the commands that put a workspace to sleep and wake it.
func Lifecycle(e *env.Env) []*cobra.Command {
	var cmds []*cobra.Command
	for _, m := range []move{
		{"pause", "Stop a workspace's CPU, keep its RAM", "pausing", (*client.Client).PauseSession},
		{"suspend", "Bring a workspace's RAM and processes to the store", "suspending", (*client.Client).SuspendSession},
		{"stop", "End a workspace's processes, keep its files", "stopping", (*client.Client).StopSession},
		{"resume", "Reverse pause, suspend or stop", "resuming", (*client.Client).ResumeSession},
	} {
		cmds = append(cmds, &cobra.Command{
			Use: m.use + " S...", Short: m.short, Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return m.run(cmd.Context(), e, args) },
		})
	}
	return cmds
}

func (m move) run(ctx context.Context, e *env.Env, names []string) error {
	for _, name := range names {
		ask := func(c *client.Client) (api.Session, error) { return m.call(c, ctx, name) }
		err := env.Call(ctx, e, m.doing+" "+name, ask, func(w io.Writer, s api.Session) {
			fmt.Fprintf(w, "%s is %s\n", s.Name, s.Workspace.State)
			if m.use == "resume" && s.ResumeReport != nil {
				fmt.Fprintf(w, "  %s\n", env.Plain(resumeText(s.ResumeReport)))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func newCancel(e *env.Env) *cobra.Command {
	req := api.CancelSession{}
	cmd := &cobra.Command{
		Use: "cancel S", Short: "Ask the turn in progress to stop; the session stays", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			ask := func(c *client.Client) (api.Session, error) { return c.CancelSession(ctx, args[0], req) }
			return env.Call(ctx, e, "", ask, func(w io.Writer, s api.Session) { fmt.Fprintf(w, "%s is %s\n", s.Name, s.Status) })
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "for the log")
	return cmd
}

func newRemove(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm S...", Short: "Delete sessions with their workspaces, logs and checkpoints", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return remove(cmd.Context(), e, args) },
	}
}

// removed is what rm --json prints of each session.
type removed struct {
	Session string `json:"session"`
	Deleted bool   `json:"deleted"`
}

func remove(ctx context.Context, e *env.Env, names []string) error {
	for _, name := range names {
		if strings.Contains(name, "@") {
			return env.Usage("%q names a checkpoint, not a session", name).WithHint("Delete it with: perdure checkpoints rm %s", name)
		}
		ask := func(c *client.Client) (removed, error) { return removed{name, true}, c.DeleteSession(ctx, name) }
		if err := env.Call(ctx, e, "deleting "+name, ask, func(w io.Writer, _ removed) { fmt.Fprintf(w, "%s deleted\n", name) }); err != nil {
			return err
		}
	}
	return nil
}
