// Package file holds the commands about files in a workspace.
package file

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/ref"
	"perdure.dev/perdure/internal/errdefs"
)

// Commands are the commands of this package.
func Commands(e *env.Env) []*cobra.Command { return []*cobra.Command{newCopy(e)} }

func newCopy(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "cp FROM TO", Short: "Copy files between this machine and a workspace", Args: cobra.ExactArgs(2),
		Long: "Copy a file or a tree; one of FROM and TO is S:PATH. If TO is a directory, or ends with a slash, the copy lands in it under its own name.\n" +
			"Relative paths in a workspace start at its home directory. - is standard input or output.",
		RunE: func(cmd *cobra.Command, args []string) error { return copyFiles(cmd.Context(), e, args[0], args[1]) },
	}
}

// copied is what cp --json prints.
type copied struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func copyFiles(ctx context.Context, e *env.Env, from, to string) error {
	src, err := ref.ParseLocation(from)
	if err != nil {
		return err
	}
	dst, err := ref.ParseLocation(to)
	if err != nil {
		return err
	}
	if (src.Session == "") == (dst.Session == "") {
		return env.Usage("one of FROM and TO must be S:PATH, and only one").WithHint("For example: perdure cp data.csv invoices:/root/")
	}
	c, err := e.Client(ctx)
	if err != nil {
		return err
	}
	work := func() (struct{}, error) {
		if src.Session != "" {
			return struct{}{}, download(ctx, e, c, src, dst.Path)
		}
		return struct{}{}, upload(ctx, e, c, src.Path, dst)
	}
	if dst.Path == "-" && dst.Session == "" { // a spinner would get into the data on one terminal
		_, err = work()
		return err
	}
	if _, err := env.Progress(e, "copying "+from, work); err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(copied{src.String(), dst.String()})
	}
	return nil
}

// upload copies from this machine into a workspace.
func upload(ctx context.Context, e *env.Env, c *client.Client, src string, dst ref.Location) error {
	if src == "-" {
		return c.WriteFile(ctx, dst.Session, dst.Path, 0, e.In)
	}
	info, err := os.Stat(src)
	if err != nil {
		return Local(err)
	}
	name := filepath.Base(src)
	if abs, err := filepath.Abs(src); err == nil {
		name = filepath.Base(abs) // src may be "." or end in ".."
	}
	target := dst.Path
	at, err := c.StatFile(ctx, dst.Session, target)
	switch {
	case err == nil && at.Type == api.TypeDirectory, strings.HasSuffix(dst.Path, "/"):
		target = path.Join(target, name)
	case err != nil && errdefs.KindOf(err) != errdefs.NotFound:
		return err
	case errdefs.CodeOf(err) == "session_not_found":
		return err
	}
	if info.IsDir() {
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(Pack(pw, src, path.Base(target))) }() // ends when the reader closes
		defer pr.Close()
		return c.WriteTar(ctx, dst.Session, path.Dir(target), pr)
	}
	f, err := os.Open(src)
	if err != nil {
		return Local(err)
	}
	defer f.Close()
	return c.WriteFile(ctx, dst.Session, target, info.Mode(), f)
}

// download copies from a workspace to this machine.
func download(ctx context.Context, e *env.Env, c *client.Client, src ref.Location, dst string) error {
	info, err := c.StatFile(ctx, src.Session, path.Clean(src.Path))
	if err != nil {
		return err
	}
	if dst == "-" {
		return fetch(ctx, c, src, e.Out)
	}
	target := dst
	if at, err := os.Stat(dst); err == nil && at.IsDir() || strings.HasSuffix(dst, "/") {
		target = filepath.Join(dst, path.Base(src.Path))
	}
	if info.Type == api.TypeDirectory {
		archive, err := c.ReadTar(ctx, src.Session, path.Clean(src.Path))
		if err != nil {
			return err
		}
		defer archive.Close()
		return unpack(archive, target)
	}
	mode := fs.FileMode(0o644)
	if n, err := strconv.ParseUint(info.Mode, 8, 12); err == nil && info.Type == api.TypeFile {
		mode = fs.FileMode(n) & fs.ModePerm
	}
	return replace(target, mode, func(w io.Writer) error { return fetch(ctx, c, src, w) })
}

func fetch(ctx context.Context, c *client.Client, src ref.Location, w io.Writer) error {
	r, err := c.ReadFile(ctx, src.Session, path.Clean(src.Path), 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(w, r); err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "connection_lost", "reading %s", src)
	}
	return nil
}

// replace writes a file beside its place and moves it there when it is whole.
func replace(target string, mode fs.FileMode, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+".*")
	if err != nil {
		return Local(err)
	}
	defer os.Remove(f.Name()) // is gone if all went well
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return f.Chmod(mode) }, f.Close, func() error { return os.Rename(f.Name(), target) },
	} {
		if err := step(); err != nil {
			return Local(err)
		}
	}
	return nil
}

// Local is an error of this machine's own files.
func Local(err error) error {
	kind, code := errdefs.Invalid, "local_file"
	if os.IsNotExist(err) {
		kind, code = errdefs.NotFound, "local_file_not_found"
	} else if os.IsPermission(err) {
		kind, code = errdefs.Denied, "local_file_denied"
	}
	return errdefs.New(kind, code, "%s", fmt.Sprint(err))
}
