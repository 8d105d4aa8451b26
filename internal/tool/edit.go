package tool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"perdure.dev/perdure/internal/model"
)

type writeArgs struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
}

func writeFile() Tool {
	return Tool{
		Class: ClassOnce,
		Spec: model.ToolSpec{
			Name:        "write_file",
			Description: "Create a file or replace its whole content. Missing directories are made.",
			Schema:      schema(`"path":{"type":"string"},"content":{"type":"string"}`, "path", "content"),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			var a writeArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			if a.Content == nil {
				return Result{}, badArg("content is missing")
			}
			p, err := env.abs(a.Path)
			if err != nil {
				return Result{}, err
			}
			if err := env.Sandbox.Files().Write(ctx, p, 0, strings.NewReader(*a.Content)); err != nil {
				return Result{}, err
			}
			return ok("wrote %d bytes to %s", len(*a.Content), p), nil
		},
	}
}

type editArgs struct {
	Path       string  `json:"path"`
	Old        string  `json:"old_string"`
	New        *string `json:"new_string"`
	ReplaceAll bool    `json:"replace_all"`
}

// maxEdit is the size of the largest file that edit_file takes; it holds the file in memory.
const maxEdit = 16 << 20

func editFile() Tool {
	return Tool{
		Class: ClassOnce,
		Spec: model.ToolSpec{
			Name: "edit_file",
			Description: "Replace text in a file. old_string must be in the file exactly once, to the last space; with replace_all, " +
				"every occurrence is replaced.",
			Schema: schema(`"path":{"type":"string"},"old_string":{"type":"string"},"new_string":{"type":"string"},"replace_all":{"type":"boolean"}`,
				"path", "old_string", "new_string"),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			var a editArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			switch {
			case a.Old == "":
				return Result{}, badArg("old_string is empty; use write_file for a new file")
			case a.New == nil:
				return Result{}, badArg("new_string is missing")
			case a.Old == *a.New:
				return Result{}, badArg("old_string and new_string are the same")
			}
			p, err := env.abs(a.Path)
			if err != nil {
				return Result{}, err
			}
			return env.edit(ctx, p, a)
		},
	}
}

func (e Env) edit(ctx context.Context, p string, a editArgs) (Result, error) {
	r, size, err := e.Sandbox.Files().Read(ctx, p, 0, -1)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	if size > maxEdit {
		return Errorf("%s has %d bytes; edit_file takes files up to %d bytes", p, size, maxEdit), nil
	}
	old, err := io.ReadAll(io.LimitReader(r, maxEdit+1))
	if err != nil {
		return Result{}, err
	}
	n := bytes.Count(old, []byte(a.Old))
	switch {
	case n == 0:
		return Errorf("old_string is not in %s: nothing was changed. Read the file and copy the text exactly, spaces and line ends included.", p), nil
	case n > 1 && !a.ReplaceAll:
		return Errorf("old_string is in %s %d times: nothing was changed. Take more of its surroundings into it, or set replace_all.", p, n), nil
	}
	if err := e.Sandbox.Files().Write(ctx, p, 0, bytes.NewReader(bytes.ReplaceAll(old, []byte(a.Old), []byte(*a.New)))); err != nil {
		return Result{}, err
	}
	return ok("replaced %d occurrence(s) in %s", n, p), nil
}

type listArgs struct {
	Path  string `json:"path"`
	Depth int    `json:"depth"`
}

const (
	maxEntries = 2000
	maxDepth   = 10
)

func listFiles() Tool {
	return Tool{
		Class: ClassRepeat,
		Spec: model.ToolSpec{
			Name:        "list_files",
			Description: "List a directory with sizes, and with depth its subdirectories. Default: where commands start.",
			Schema:      schema(`"path":{"type":"string"},"depth":{"type":"integer","minimum":1,"maximum":10,"description":"default 1"}`),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			a := listArgs{Path: "~", Depth: 1}
			if env.Here {
				a.Path = "."
			}
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			if a.Depth < 1 || a.Depth > maxDepth {
				return Result{}, badArg("depth must be between 1 and %d", maxDepth)
			}
			p, err := env.abs(a.Path)
			if err != nil {
				return Result{}, err
			}
			l := lister{env: env}
			if err := l.dir(ctx, p, "", a.Depth); err != nil {
				return Result{}, err
			}
			if l.n == 0 {
				return ok("%s is empty", p), nil
			}
			if l.n > maxEntries {
				fmt.Fprintf(&l.out, "[more than %d entries; the rest is left out]\n", maxEntries)
			}
			return env.text(ctx, "files.txt", l.out.String())
		},
	}
}

type lister struct {
	env Env
	out strings.Builder
	n   int
}

func (l *lister) dir(ctx context.Context, p, prefix string, depth int) error {
	entries, err := l.env.Sandbox.Files().List(ctx, p)
	if err != nil {
		return err
	}
	for _, f := range entries {
		if l.n++; l.n > maxEntries {
			return nil
		}
		name := prefix + f.Name
		switch {
		case f.Mode.IsDir():
			fmt.Fprintf(&l.out, "%s/\n", name)
		case f.Mode&fs.ModeSymlink != 0:
			fmt.Fprintf(&l.out, "%s -> %s\n", name, f.Target)
		default:
			fmt.Fprintf(&l.out, "%s  %d bytes\n", name, f.Size)
		}
		if f.Mode.IsDir() && depth > 1 {
			if err := l.dir(ctx, path.Join(p, f.Name), name+"/", depth-1); err != nil {
				// One unreadable directory does not spoil the list.
				fmt.Fprintf(&l.out, "%s/ [%v]\n", name, err)
			}
		}
	}
	return nil
}
