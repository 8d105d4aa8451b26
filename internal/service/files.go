package service

import (
	"context"
	"io"
	"io/fs"
	"path"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// files returns the files of a session's workspace, waking it.
func (s *Service) files(ctx context.Context, ref, name string) (sandbox.Files, error) {
	if !path.IsAbs(name) && name != "~" && !strings.HasPrefix(name, "~/") {
		return nil, errdefs.New(errdefs.Invalid, "invalid_path", "%q is neither absolute nor below ~", name).WithHint("paths are those inside the workspace, such as /root/data.csv or ~/data.csv")
	}
	l, err := s.live(ctx, ref)
	if err != nil {
		return nil, err
	}
	sb, err := l.running(ctx)
	if err != nil {
		return nil, err
	}
	return sb.Files(), nil
}

// ReadFile opens a file of the workspace.
func (s *Service) ReadFile(ctx context.Context, ref, name string, offset, length int64) (io.ReadCloser, int64, error) {
	f, err := s.files(ctx, ref, name)
	if err != nil {
		return nil, 0, err
	}
	return f.Read(ctx, name, offset, length)
}

// WriteFile replaces a file of the workspace.
func (s *Service) WriteFile(ctx context.Context, ref, name string, mode fs.FileMode, data io.Reader) error {
	f, err := s.files(ctx, ref, name)
	if err != nil {
		return err
	}
	return f.Write(ctx, name, mode, data)
}

// ListFiles lists a directory.
func (s *Service) ListFiles(ctx context.Context, ref, name string) (api.List[api.FileInfo], error) {
	f, err := s.files(ctx, ref, name)
	if err != nil {
		return api.List[api.FileInfo]{}, err
	}
	entries, err := f.List(ctx, name)
	return list(entries, func(fi sandbox.FileInfo) api.FileInfo { return presentFile(path.Join(name, fi.Name), fi) }), err
}

// StatFile describes a file.
func (s *Service) StatFile(ctx context.Context, ref, name string) (api.FileInfo, error) {
	f, err := s.files(ctx, ref, name)
	if err != nil {
		return api.FileInfo{}, err
	}
	fi, err := f.Stat(ctx, name)
	return presentFile(name, fi), err
}

// RemoveFile deletes a file or a tree.
func (s *Service) RemoveFile(ctx context.Context, ref, name string, recursive bool) error {
	f, err := s.files(ctx, ref, name)
	if err != nil {
		return err
	}
	return f.Remove(ctx, name, recursive)
}

// Mkdir makes a directory and its parents.
func (s *Service) Mkdir(ctx context.Context, ref, name string, mode fs.FileMode) error {
	f, err := s.files(ctx, ref, name)
	if err != nil {
		return err
	}
	return f.Mkdir(ctx, name, mode)
}

// Processes lists what runs in the workspace. A workspace without a sandbox has none.
func (s *Service) Processes(ctx context.Context, ref string) (api.List[api.Process], error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.List[api.Process]{}, err
	}
	sb, err := l.need()
	if err != nil {
		return api.List[api.Process]{Data: []api.Process{}}, nil
	}
	all, err := sb.Files().Processes(ctx)
	return list(all, presentProcess), err
}
