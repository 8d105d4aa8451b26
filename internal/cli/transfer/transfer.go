// Package transfer holds the commands that write sessions to files and make sessions of them.
package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/ref"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/portable"
)

// Commands are the commands of this package.
func Commands(e *env.Env) []*cobra.Command { return []*cobra.Command{newExport(e), newImport(e)} }

type exportOptions struct {
	e      *env.Env
	req    api.ExportSession
	output string
}

func newExport(e *env.Env) *cobra.Command {
	o := &exportOptions{e: e}
	cmd := &cobra.Command{
		Use: "export S[@CKPT]", Short: "Write a session to a file: log, files and RAM", Args: cobra.ExactArgs(1),
		Long: "Write a session to a file, from which perdure import makes it again, here or on another machine. A session that runs is cut by a checkpoint, and\n" +
			"runs on; one that sleeps is taken as it is. The file holds everything in the clear, RAM too: keep it as you would keep the session.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "the file; standard output if not given")
	cmd.Flags().BoolVar(&o.req.NoMemory, "no-memory", false, "files and transcript alone")
	cmd.Flags().StringVar(&o.req.Checkpoint, "checkpoint", "", "this checkpoint, by id or message, not the present state")
	return cmd
}

// exported is what export --json prints.
type exported struct {
	SessionID    string `json:"session_id"`
	Name         string `json:"name"`
	CheckpointID string `json:"checkpoint_id"`
	Memory       bool   `json:"memory"`
	Events       int    `json:"events"`
	Content      int64  `json:"content_bytes"` // before compression
	File         string `json:"file"`
	Size         int64  `json:"size"`
}

func (o *exportOptions) run(ctx context.Context, arg string) error {
	p, err := ref.ParsePoint(arg)
	if err != nil {
		return err
	}
	if p.Checkpoint != "" {
		if o.req.Checkpoint != "" {
			return env.Usage("the checkpoint is given twice")
		}
		o.req.Checkpoint = p.Checkpoint
	}
	toFile := o.output != "" && o.output != "-"
	switch {
	case !toFile && o.e.JSON:
		return env.Usage("--json needs a file: the archive itself would go to standard output").WithHint("Add: -o FILE")
	case !toFile && o.e.Terminal.Out():
		return env.Usage("an archive is not for a terminal").WithHint("Add -o FILE, or redirect the output.")
	}
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	out, err := env.Progress(o.e, "exporting "+p.Session, func() (exported, error) {
		if !toFile {
			return o.receive(ctx, c, p.Session, o.e.Out)
		}
		return o.toFile(ctx, c, p.Session)
	})
	if err != nil || !toFile {
		return err
	}
	return o.e.Print(out, func(w io.Writer) {
		what := "without memory"
		if out.Memory {
			what = "with memory"
		}
		fmt.Fprintf(w, "%s  %s at %s, %s: %s\n", out.File, out.Name, out.CheckpointID, what, env.Size(out.Size))
	})
}

// toFile writes the file under another name until it is whole.
func (o *exportOptions) toFile(ctx context.Context, c *client.Client, session string) (out exported, err error) {
	f, err := os.CreateTemp(filepath.Dir(o.output), "."+filepath.Base(o.output)+".*")
	if err != nil {
		return out, local(err, "write %s", o.output)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if out, err = o.receive(ctx, c, session, f); err == nil {
		err = local(f.Sync(), "write %s", o.output)
	}
	if cerr := f.Close(); err == nil {
		err = local(cerr, "write %s", o.output)
	}
	if err != nil {
		return out, err
	}
	out.File = o.output
	return out, local(os.Rename(f.Name(), o.output), "write %s", o.output)
}

// receive copies the stream, and looks into it on the way: one that is not whole is an error.
func (o *exportOptions) receive(ctx context.Context, c *client.Client, session string, w io.Writer) (exported, error) {
	body, err := c.ExportSession(ctx, session, o.req)
	if err != nil {
		return exported{}, err
	}
	defer body.Close()
	out := exported{}
	counted := &counter{w: w}
	in := bufio.NewReaderSize(io.TeeReader(body, counted), 1<<20)
	h, t, err := portable.Check(in)
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if counted.err != nil {
		return out, local(counted.err, "write the archive")
	}
	if err != nil {
		return out, errdefs.Wrap(err, errdefs.Unavailable, "export_cut", "the export ended in its middle").(*errdefs.Error).
			WithHint("the daemon's log says why; try again")
	}
	out = exported{
		SessionID: string(h.Session.ID), Name: h.Session.Name, CheckpointID: string(h.Checkpoint.ID), Memory: h.Memory,
		Events: h.Logs[len(h.Logs)-1].Events, Content: t.Bytes, Size: counted.n,
	}
	return out, nil
}

// counter counts what it passes on, and keeps its error.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
	return n, err
}

func local(err error, format string, args ...any) error {
	return errdefs.Wrap(err, errdefs.Unavailable, "local_file", format, args...)
}

type importOptions struct {
	e   *env.Env
	req api.ImportSession
}

func newImport(e *env.Env) *cobra.Command {
	o := &importOptions{e: e}
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Make a session of a file that perdure export wrote", Args: cobra.ExactArgs(1),
		Long: "Make a session of an archive; - is standard input. It keeps its id and name if they are free here, and sleeps until somebody resumes it.\n" +
			"With memory it needs the engine version and a processor like those of the machine that it was exported on; --no-memory does without.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&o.req.Name, "name", "", "its name here")
	cmd.Flags().BoolVar(&o.req.NoMemory, "no-memory", false, "files and transcript alone")
	return cmd
}

func (o *importOptions) run(ctx context.Context, name string) error {
	in := o.e.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return errdefs.Wrap(err, errdefs.NotFound, "local_file_not_found", "read the archive")
		}
		defer f.Close()
		in = f
	} else if o.e.Terminal.In() {
		return env.Usage("an archive does not come from a terminal").WithHint("Name a file, or redirect the input.")
	}
	ask := func(c *client.Client) (api.Session, error) { return c.ImportSession(ctx, o.req, in) }
	return env.Call(ctx, o.e, "importing "+name, ask, func(w io.Writer, s api.Session) {
		what := "its files and transcript"
		if s.Imported != nil && s.Imported.Memory {
			what = "its processes, files and transcript"
		}
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s.ID)
		if s.Imported != nil && s.Imported.SessionID != s.ID {
			fmt.Fprintf(w, "  %s is or was here already: this is a copy with ids of its own\n", s.Imported.SessionID)
		}
		fmt.Fprintf(w, "  it sleeps with %s: perdure resume %s\n", what, s.Name)
	})
}
