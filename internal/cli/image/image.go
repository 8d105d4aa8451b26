package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/file"
)

// Commands are the commands of this package.
func Commands(e *env.Env) []*cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Images that workspaces start from: pull, import, ls, show, rm", Args: cobra.NoArgs,
		Long: "Images that workspaces start from, as in: perdure create S --image debian:12. An image comes from a registry or a file, and is stored once for all\n" +
			"sessions. A session keeps to the image that it was made with, whatever its tag means later. Environment, user and working directory of an image\n" +
			"hold for the commands of a workspace; entrypoint and command are shown, and not started.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newPull(e), newImport(e),
		&cobra.Command{
			Use: "ls", Short: "List stored images", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), e) },
		},
		&cobra.Command{
			Use: "show IMAGE", Short: "Show an image: configuration, layers, sessions", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), e, args[0]) },
		},
		&cobra.Command{
			Use: "rm IMAGE...", Short: "Delete images; one that a session or checkpoint needs stays", Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return remove(cmd.Context(), e, args) },
		},
	)
	return []*cobra.Command{cmd}
}

func newPull(e *env.Env) *cobra.Command {
	req := api.PullImage{}
	cmd := &cobra.Command{
		Use: "pull REF", Short: "Bring an image from a registry", Args: cobra.ExactArgs(1),
		Long: "Bring an image from a registry, such as debian:12, ghcr.io/OWNER/NAME:TAG or NAME@sha256:DIGEST. Of an image for several machines, the one for\n" +
			"this machine is taken. Logins are those of docker login, of the user who runs the daemon. ^C ends the pull; layers that are whole stay for the next.",
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Reference = args[0]
			return pull(cmd.Context(), e, req)
		},
	}
	cmd.Flags().BoolVar(&req.Insecure, "insecure", false, "the registry has no TLS")
	return cmd
}

func pull(ctx context.Context, e *env.Env, req api.PullImage) error {
	c, err := e.Client(ctx)
	if err != nil {
		return err
	}
	var now atomic.Pointer[api.PullProgress]
	what := func() string {
		p := now.Load()
		if p == nil || p.Layers == 0 {
			return "pulling " + req.Reference
		}
		return fmt.Sprintf("pulling %s: %d of %d layers, %s of %s", req.Reference, p.LayersDone, p.Layers, env.Size(p.BytesDone), env.Size(p.Bytes))
	}
	img, err := env.ProgressOf(e, what, func() (api.Image, error) {
		return c.PullImage(ctx, req, func(p api.PullProgress) { now.Store(&p) })
	})
	if err != nil {
		return err
	}
	return e.Print(img, func(w io.Writer) { stored(w, img) })
}

// stored tells of an image that has come.
func stored(w io.Writer, img api.Image) {
	name := strings.Join(img.Names, " ")
	if name == "" {
		name = "(no name)"
	}
	fmt.Fprintf(w, "%s\t%s\n", env.Plain(name), img.Digest)
}

func newImport(e *env.Env) *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Take an image from a file or directory", Args: cobra.ExactArgs(1),
		Long: "Take an image from what docker save wrote, from an OCI layout (a directory, or a tar of it), or from a tar of a root file system; a tar may be\n" +
			"compressed with gzip or zstd. FILE - reads standard input. Without --name the image has the name that the archive gives it, if any; else it goes by\n" +
			"its digest.",
		RunE: func(cmd *cobra.Command, args []string) error { return importFile(cmd.Context(), e, args[0], name) },
	}
	cmd.Flags().StringVar(&name, "name", "", "NAME or NAME:TAG")
	return cmd
}

func importFile(ctx context.Context, e *env.Env, path, name string) error {
	archive, err := open(e, path)
	if err != nil {
		return err
	}
	defer archive.Close()
	ask := func(c *client.Client) (api.Image, error) { return c.ImportImage(ctx, name, archive) }
	return env.Call(ctx, e, "importing "+path, ask, stored)
}

// open reads a file, standard input, or a directory as an archive.
func open(e *env.Env, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(e.In), nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, file.Local(err)
	}
	if info.IsDir() {
		if _, err := os.Stat(path + "/oci-layout"); err != nil {
			return nil, env.Usage("%s is a directory, but no OCI layout", path).
				WithHint("A root file system is used in place with --image dir:%s, or imported as a tar: tar -C %s -c . | perdure image import - --name NAME", path, path)
		}
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(file.Pack(pw, path, ".")) }() // ends when the reader closes
		return pr, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, file.Local(err)
	}
	return f, nil
}

func list(ctx context.Context, e *env.Env) error {
	read := func(c *client.Client) (api.List[api.Image], error) {
		return env.All(func(i api.Image) string { return i.Digest }, func(p api.Page) (api.List[api.Image], error) { return c.Images(ctx, p) })
	}
	return env.Call(ctx, e, "", read, func(w io.Writer, all api.List[api.Image]) {
		var rows [][]string
		for _, i := range all.Data {
			name := strings.Join(i.Names, " ")
			if name == "" {
				name = "-"
			}
			rows = append(rows, []string{name, short(i.Digest), env.Size(i.SizeBytes), env.Ago(i.StoredAt), fmt.Sprint(len(i.Sessions)), startOf(i.Config)})
		}
		env.Table(w, "NAME DIGEST SIZE STORED SESSIONS COMMAND", rows)
	})
}

// short is as much of a digest as names an image.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }

// startOf is what a container would start.
func startOf(c api.ImageConfig) string {
	return strings.Join(append(append([]string{}, c.Entrypoint...), c.Cmd...), " ")
}

func show(ctx context.Context, e *env.Env, ref string) error {
	ask := func(c *client.Client) (api.Image, error) { return c.Image(ctx, ref) }
	return env.Call(ctx, e, "", ask, func(w io.Writer, i api.Image) {
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(w, "%-12s %s\n", name, env.Plain(value))
			}
		}
		line("names", strings.Join(i.Names, " "))
		line("digest", i.Digest)
		line("source", i.Source)
		line("platform", i.OS+"/"+i.Architecture)
		if i.CreatedAt != nil {
			line("built", env.Ago(*i.CreatedAt)+" ago")
		}
		line("stored", env.Ago(i.StoredAt)+" ago")
		line("size", fmt.Sprintf("%s in %d layers", env.Size(i.SizeBytes), len(i.Layers)))
		line("user", i.Config.User)
		line("directory", i.Config.WorkingDir)
		line("entrypoint", strings.Join(i.Config.Entrypoint, " "))
		line("command", strings.Join(i.Config.Cmd, " "))
		line("ports", strings.Join(i.Config.Ports, " "))
		for _, kv := range i.Config.Env {
			line("env", kv)
		}
		line("sessions", strings.Join(i.Sessions, " "))
	})
}

// removed is what rm --json prints of each image.
type removed struct {
	Image   string `json:"image"`
	Deleted bool   `json:"deleted"`
}

func remove(ctx context.Context, e *env.Env, refs []string) error {
	for _, ref := range refs {
		ask := func(c *client.Client) (removed, error) { return removed{ref, true}, c.DeleteImage(ctx, ref) }
		if err := env.Call(ctx, e, "deleting "+ref, ask, func(w io.Writer, r removed) { fmt.Fprintf(w, "%s deleted\n", r.Image) }); err != nil {
			return err
		}
	}
	return nil
}
