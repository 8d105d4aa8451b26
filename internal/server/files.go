package server

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
)

// FileRef is a file in a workspace.
type FileRef struct {
	SessionRef
	Path string `query:"path" required:"true" doc:"Absolute, inside the workspace, or from its home directory: ~/…" maxLength:"4096"`
}

// clean checks a path once, before anything is done with it.
func (r FileRef) clean() (string, error) {
	rest, home := strings.CutPrefix(r.Path, "~")
	if home && rest == "" {
		rest = "/"
	}
	if !strings.HasPrefix(rest, "/") || strings.ContainsRune(rest, 0) {
		return "", errdefs.New(errdefs.Invalid, "bad_path", "%q is neither absolute nor below ~", r.Path).WithHint("Give the path from the workspace's root, such as /root/data.csv, or from its home directory, such as ~/data.csv.")
	}
	if home {
		return strings.TrimSuffix("~"+path.Clean(rest), "/"), nil
	}
	return path.Clean(rest), nil
}

// sizeHeader is the whole size of a file of which a part is read.
const sizeHeader = "Perdure-File-Size"

func (s *Server) fileRoutes() {
	b := s.cfg.Backend.Files
	handle(s, route{
		id: "stat-file", method: http.MethodGet, path: "/sessions/{s}/files", role: actor.Operator, summary: "Describe a file; links are not followed",
	}, func(ctx context.Context, in *FileRef) (api.FileInfo, error) {
		p, err := in.clean()
		if err != nil {
			return api.FileInfo{}, err
		}
		return b.StatFile(ctx, in.Session, p)
	})
	handle(s, route{
		id: "list-files", method: http.MethodGet, path: "/sessions/{s}/files/list", role: actor.Operator, summary: "List a directory",
	}, func(ctx context.Context, in *FileRef) (api.List[api.FileInfo], error) {
		p, err := in.clean()
		if err != nil {
			return api.List[api.FileInfo]{}, err
		}
		return b.ListFiles(ctx, in.Session, p)
	})
	handleStream(s, route{
		id: "read-file", method: http.MethodGet, path: "/sessions/{s}/files/content", role: actor.Operator, waits: true, media: octetStream,
		summary: "Read a file, or a part of it",
	}, func(ctx context.Context, in *struct {
		FileRef
		Offset int64 `query:"offset" minimum:"0"`
		Length int64 `query:"length" minimum:"-1" default:"-1" doc:"-1: to the end."`
	}, x *exchange) error {
		p, err := in.clean()
		if err != nil {
			return err
		}
		r, size, err := b.ReadFile(ctx, in.Session, p, in.Offset, in.Length)
		if err != nil {
			return err
		}
		defer r.Close()
		x.w.Header().Set("Content-Type", octetStream)
		x.w.Header().Set(sizeHeader, strconv.FormatInt(size, 10))
		_, err = io.Copy(x.w, r)
		return cut(err)
	})
	handleEmpty(s, route{
		id: "write-file", method: http.MethodPut, path: "/sessions/{s}/files/content", role: actor.Operator, waits: true, request: octetStream,
		summary: "Replace a file whole, making its parents",
	}, func(ctx context.Context, in *struct {
		FileRef
		Mode string `query:"mode" pattern:"^[0-7]{0,4}$" doc:"Octal; empty: what it had, or 0644."`
	}) error {
		p, err := in.clean()
		if err != nil {
			return err
		}
		mode, err := parseMode(in.Mode)
		if err != nil {
			return err
		}
		return b.WriteFile(ctx, in.Session, p, mode, exchangeOf(ctx).r.Body)
	})
	handleEmpty(s, route{
		id: "remove-file", method: http.MethodDelete, path: "/sessions/{s}/files", role: actor.Operator,
		summary: "Remove a file, or with recursive a tree; a missing one is no error",
	}, func(ctx context.Context, in *struct {
		FileRef
		Recursive bool `query:"recursive"`
	}) error {
		p, err := in.clean()
		if err != nil {
			return err
		}
		return b.RemoveFile(ctx, in.Session, p, in.Recursive)
	})
	handleEmpty(s, route{
		id: "make-directory", method: http.MethodPut, path: "/sessions/{s}/files/directory", role: actor.Operator, summary: "Make a directory and its parents",
	}, func(ctx context.Context, in *FileRef) error {
		p, err := in.clean()
		if err != nil {
			return err
		}
		return b.Mkdir(ctx, in.Session, p, 0o755)
	})
	handle(s, route{
		id: "list-processes", method: http.MethodGet, path: "/sessions/{s}/processes", role: actor.Viewer, summary: "List the processes of a workspace",
	}, func(ctx context.Context, in *SessionRef) (api.List[api.Process], error) {
		return b.Processes(ctx, in.Session)
	})
}

// parseMode reads octal permission bits; setuid and its kin are in the first digit of four, as chmod has them.
func parseMode(s string) (fs.FileMode, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 12)
	if err != nil {
		return 0, errdefs.New(errdefs.Invalid, "bad_mode", "%q is not an octal mode", s)
	}
	mode := fs.FileMode(n) & fs.ModePerm
	for bit, m := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			mode |= m
		}
	}
	return mode, nil
}
