package checkpoint

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/ref"
	"perdure.dev/perdure/internal/errdefs"
)

type createOptions struct {
	e   *env.Env
	req api.CreateCheckpoint
}

func newCreate(e *env.Env) *cobra.Command {
	o := &createOptions{e: e}
	cmd := &cobra.Command{
		Use: "checkpoint S", Short: "Take a checkpoint of a session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVarP(&o.req.Message, "message", "m", "", "what it is; S@MESSAGE then names it")
	cmd.Flags().BoolVar(&o.req.Keep, "keep", false, "never delete it to save space")
	return cmd
}

func (o *createOptions) run(ctx context.Context, session string) error {
	ask := func(c *client.Client) (api.Checkpoint, error) { return c.CreateCheckpoint(ctx, session, o.req) }
	return env.Call(ctx, o.e, "taking a checkpoint of "+session, ask, func(w io.Writer, k api.Checkpoint) {
		fmt.Fprintf(w, "%s  %s at %d  memory %s, files %s, paused %.1f ms\n", k.ID, k.State, k.Seq, env.Size(k.MemoryBytes), env.Size(k.FileBytes), k.PauseMS)
	})
}

func newList(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoints S", Short: "List a session's checkpoints", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return list(cmd.Context(), e, args[0]) },
	}
	cmd.AddCommand(storageCommands(e)...)
	cmd.AddCommand(
		&cobra.Command{
			Use: "ls S", Short: "List a session's checkpoints", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return list(cmd.Context(), e, args[0]) },
		},
		&cobra.Command{
			Use: "rm CKPT|S@CKPT...", Short: "Delete checkpoints; what others share stays", Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return remove(cmd.Context(), e, args) },
		},
	)
	return cmd
}

func list(ctx context.Context, e *env.Env, session string) error {
	read := func(c *client.Client) (api.List[api.Checkpoint], error) { return ref.Checkpoints(ctx, c, session) }
	return env.Call(ctx, e, "", read, func(w io.Writer, all api.List[api.Checkpoint]) {
		var rows [][]string
		for _, k := range all.Data {
			memory := "-"
			if k.Memory {
				memory = env.Size(k.MemoryBytes)
			}
			rows = append(rows, []string{k.ID, strconv.FormatUint(k.Seq, 10), k.State, k.Kind, memory, env.Size(k.FileBytes), env.Ago(k.CreatedAt), k.Message})
		}
		env.Table(w, "ID SEQ STATE KIND MEMORY FILES AGE MESSAGE", rows)
	})
}

// removed is what rm --json prints of each checkpoint.
type removed struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

func remove(ctx context.Context, e *env.Env, names []string) error {
	for _, name := range names {
		p, err := ref.ParsePoint(name)
		if err != nil {
			return err
		}
		ask := func(c *client.Client) (removed, error) {
			id, err := p.Session, error(nil) // a checkpoint's id alone
			if p.Checkpoint != "" {
				id, err = ref.CheckpointID(ctx, c, p.Session, p.Checkpoint)
			}
			if err != nil {
				return removed{}, err
			}
			return removed{id, true}, c.DeleteCheckpoint(ctx, id)
		}
		if err := env.Call(ctx, e, "deleting "+name, ask, func(w io.Writer, r removed) { fmt.Fprintf(w, "%s deleted\n", r.ID) }); err != nil {
			return err
		}
	}
	return nil
}

func newVerify(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "verify S", Short: "Check a session's log, manifests and stored content", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return verify(cmd.Context(), e, args[0]) },
	}
}

func verify(ctx context.Context, e *env.Env, session string) error {
	v, err := env.Ask(ctx, e, "verifying "+session, func(c *client.Client) (api.VerifyReport, error) { return c.VerifySession(ctx, session) })
	if err != nil {
		return err
	}
	err = e.Print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%d events, %d checkpoints, %s of content; head %s\n", v.Events, v.Checkpoints, env.Size(v.Bytes), v.HeadHash)
		for _, p := range v.Problems {
			fmt.Fprintf(w, "✗ %s: %s (%s)\n", p.Subject, env.Plain(p.Detail), p.Code)
		}
	})
	if err != nil || v.OK {
		return err
	}
	if e.JSON {
		return &env.Exit{Code: errdefs.Corrupt.ExitCode()}
	}
	return errdefs.New(errdefs.Corrupt, "verify_failed", "%s does not verify", session).WithHint("Roll back to a checkpoint that verifies, and keep a copy of the data directory.")
}
