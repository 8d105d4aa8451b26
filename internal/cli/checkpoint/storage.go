package checkpoint

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
)

// storageCommands look after what is stored of checkpoints.
func storageCommands(e *env.Env) []*cobra.Command {
	check := func(repair bool) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			return checkStorage(cmd.Context(), e, api.CheckStorage{Session: optional(args), Repair: repair})
		}
	}
	return []*cobra.Command{
		{
			Use: "verify [S]", Short: "Read all that is stored of a session's checkpoints, or of all, and compare it with its hashes", Args: cobra.MaximumNArgs(1),
			RunE: check(false),
		},
		{
			Use: "repair [S]", Short: "Heal each copy of a memory image by the other, set damaged objects aside, and verify", Args: cobra.MaximumNArgs(1),
			RunE: check(true),
		},
		{
			Use: "usage [S]", Short: "Say what checkpoints take, of a session and its relatives, or of all", Args: cobra.MaximumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return usage(cmd.Context(), e, optional(args)) },
		},
	}
}

func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func checkStorage(ctx context.Context, e *env.Env, req api.CheckStorage) error {
	doing := "verifying"
	if req.Repair {
		doing = "repairing"
	}
	r, err := env.Ask(ctx, e, doing+" what is stored", func(c *client.Client) (api.StorageReport, error) { return c.CheckStorage(ctx, req) })
	if err != nil {
		return err
	}
	if err := e.Print(r, func(w io.Writer) { tellStorage(w, r) }); err != nil {
		return err
	}
	if r.OK {
		return nil
	}
	hint := "perdure checkpoints repair heals what has a second copy."
	if req.Repair {
		hint = "What is left has no second copy that is whole: perdure recover S goes to the newest state that verifies."
	}
	return errdefs.New(errdefs.Corrupt, "verify_failed", "what is stored does not verify").WithHint("%s", hint)
}

func tellStorage(w io.Writer, r api.StorageReport) {
	checkpoints, content := 0, int64(0)
	for _, s := range r.Sessions {
		checkpoints, content = checkpoints+s.Checkpoints, content+s.Bytes
	}
	fmt.Fprintf(w, "%d sessions, %d checkpoints, %s of content; %d packs with %d chunks, %s\n", len(r.Sessions), checkpoints, env.Size(content), r.Packs, r.Chunks, env.Size(r.Bytes))
	for _, d := range r.Damaged {
		fmt.Fprintf(w, "✗ %s: %d chunks cannot be read: %s\n", d.Object, d.Chunks, env.Plain(d.Reason))
	}
	for _, h := range r.Healed {
		fmt.Fprintf(w, "healed: %s (%s)\n", h.CheckpointID, h.Copy)
	}
	for _, l := range r.Lost {
		fmt.Fprintf(w, "✗ %s: its stored memory image is not whole: %s\n", l.CheckpointID, env.Plain(strings.TrimPrefix(l.File+": "+l.Reason, ": ")))
	}
	for _, s := range r.Sessions {
		for _, p := range s.Problems {
			fmt.Fprintf(w, "✗ %s: %s (%s)\n", p.Subject, env.Plain(p.Detail), p.Code)
		}
	}
}

func usage(ctx context.Context, e *env.Env, session string) error {
	ask := func(c *client.Client) (api.StorageUsage, error) { return c.StorageUsage(ctx, session) }
	return env.Call(ctx, e, "measuring", ask, func(w io.Writer, u api.StorageUsage) {
		var rows [][]string
		for _, l := range u.Lineages {
			rows = append(rows, []string{
				strings.Join(l.Sessions, ","), strconv.Itoa(l.Checkpoints), strconv.Itoa(l.Images), env.Size(l.Logical), env.Size(l.Content), env.Size(l.Stored),
			})
		}
		env.Table(w, "SESSIONS CHECKPOINTS IMAGES AS-COPIES CONTENT STORED", rows)
		fmt.Fprintf(w, "memory images as files: %s, file layers: %s, of all sessions\n", env.Size(u.Cached), env.Size(u.Layers))
	})
}
