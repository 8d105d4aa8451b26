package server

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"net/http"
	"path"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/archive"
	"perdure.dev/perdure/internal/errdefs"
)

const tarType = "application/x-tar"

func (s *Server) tarRoutes() {
	handleStream(s, route{
		id: "read-tar", method: http.MethodGet, path: "/sessions/{s}/files/tar", role: actor.Operator, waits: true, media: tarType,
		summary: "Read a file or a tree as a tar archive, whose names start with the last element of path",
	}, func(ctx context.Context, in *FileRef, x *exchange) error {
		p, err := in.clean()
		if err != nil {
			return err
		}
		info, err := s.cfg.Backend.Files.StatFile(ctx, in.Session, p)
		if err != nil {
			return err
		}
		x.w.Header().Set("Content-Type", tarType)
		t := &tarOut{s: s, ref: in.Session, w: tar.NewWriter(x.w)}
		base := path.Base(p)
		if base == "/" {
			base = "."
		}
		err = t.add(ctx, p, base, info)
		return cut(errors.Join(err, t.w.Close()))
	})
	handleEmpty(s, route{
		id: "write-tar", method: http.MethodPut, path: "/sessions/{s}/files/tar", role: actor.Operator, waits: true, request: tarType,
		summary: "Unpack a tar archive below a directory of the workspace",
	}, func(ctx context.Context, in *FileRef) error {
		p, err := in.clean()
		if err != nil {
			return err
		}
		return s.cfg.Backend.Files.Unpack(ctx, in.Session, p, exchangeOf(ctx).r.Body)
	})
}

// tarOut writes a workspace's files as an archive, through the sandbox's own eyes.
type tarOut struct {
	s       *Server
	ref     string
	w       *tar.Writer
	entries int
}

// add writes the file p under the given name, and what is below it. Sockets, pipes and devices are left out.
func (t *tarOut) add(ctx context.Context, p, name string, info api.FileInfo) error {
	if t.entries++; t.entries > archive.MaxEntries {
		return archive.TooLarge(p)
	}
	mode, err := parseMode(info.Mode)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(mode.Perm()), ModTime: info.ModTime}
	switch info.Type {
	case api.TypeDirectory:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := t.w.WriteHeader(h); err != nil {
			return err
		}
		list, err := t.s.cfg.Backend.Files.ListFiles(ctx, t.ref, p)
		if err != nil {
			return err
		}
		for _, child := range list.Data {
			if err := t.add(ctx, path.Join(p, child.Name), name+"/"+child.Name, child); err != nil {
				return err
			}
		}
		return nil
	case api.TypeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, info.Target
		return t.w.WriteHeader(h)
	case api.TypeFile:
		return t.file(ctx, p, h)
	}
	return nil
}

// file writes one file. One that grows or shrinks meanwhile is cut, or filled up, to the size it had when it was opened.
func (t *tarOut) file(ctx context.Context, p string, h *tar.Header) error {
	r, size, err := t.s.cfg.Backend.Files.ReadFile(ctx, t.ref, p, 0, -1)
	if errdefs.CodeOf(err) == "file_not_found" {
		return nil // it was there a moment ago; an archive of a live tree is no cut
	}
	if err != nil {
		return err
	}
	defer r.Close()
	h.Typeflag, h.Size = tar.TypeReg, size
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(t.w, io.LimitReader(r, size))
	if err == nil && n < size {
		_, err = io.CopyN(t.w, zeros{}, size-n)
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
