package service

import (
	"context"
	"io"
	"io/fs"
	"path"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/sandbox"
)

// files returns the files of a session's workspace, waking it. The caller calls done when he is, if there is no error.
func (s *Service) files(ctx context.Context, ref, name string) (files sandbox.Files, done func(), err error) {
	if !path.IsAbs(name) && name != "~" && !strings.HasPrefix(name, "~/") {
		return nil, nil, errdefs.New(errdefs.Invalid, "invalid_path", "%q is neither absolute nor below ~", name).WithHint("paths are those inside the workspace, such as /root/data.csv or ~/data.csv")
	}
	l, err := s.live(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	done = l.use(idle.Files)
	sb, err := l.running(ctx)
	if err != nil {
		done()
		return nil, nil, err
	}
	return sb.Files(), done, nil
}

// fileReader is a file that is being read.
type fileReader struct {
	io.ReadCloser
	done func()
}

// Close ends the reading.
func (r fileReader) Close() error {
	defer r.done()
	return r.ReadCloser.Close()
}

// ReadFile opens a file of the workspace.
func (s *Service) ReadFile(ctx context.Context, ref, name string, offset, length int64) (io.ReadCloser, int64, error) {
	f, done, err := s.files(ctx, ref, name)
	if err != nil {
		return nil, 0, err
	}
	r, size, err := f.Read(ctx, name, offset, length)
	if err != nil {
		done()
		return nil, 0, err
	}
	return fileReader{r, done}, size, nil
}

// WriteFile replaces a file of the workspace.
func (s *Service) WriteFile(ctx context.Context, ref, name string, mode fs.FileMode, data io.Reader) error {
	f, done, err := s.files(ctx, ref, name)
	if err != nil {
		return err
	}
	defer done()
	return f.Write(ctx, name, mode, data)
}

// ListFiles lists a directory.
func (s *Service) ListFiles(ctx context.Context, ref, name string) (api.List[api.FileInfo], error) {
	f, done, err := s.files(ctx, ref, name)
	if err != nil {
		return api.List[api.FileInfo]{}, err
	}
	defer done()
	entries, err := f.List(ctx, name)
	return list(entries, func(fi sandbox.FileInfo) api.FileInfo { return presentFile(path.Join(name, fi.Name), fi) }), err
}

// StatFile describes a file.
func (s *Service) StatFile(ctx context.Context, ref, name string) (api.FileInfo, error) {
	f, done, err := s.files(ctx, ref, name)
	if err != nil {
		return api.FileInfo{}, err
	}
	defer done()
	fi, err := f.Stat(ctx, name)
	return presentFile(name, fi), err
}

// RemoveFile deletes a file or a tree.
func (s *Service) RemoveFile(ctx context.Context, ref, name string, recursive bool) error {
	f, done, err := s.files(ctx, ref, name)
	if err != nil {
		return err
	}
	defer done()
	return f.Remove(ctx, name, recursive)
}

// Mkdir makes a directory and its parents.
func (s *Service) Mkdir(ctx context.Context, ref, name string, mode fs.FileMode) error {
	f, done, err := s.files(ctx, ref, name)
	if err != nil {
		return err
	}
	defer done()
	return f.Mkdir(ctx, name, mode)
}

// Processes lists what runs in the workspace, or stands still in a paused one. A workspace without a sandbox has none.
func (s *Service) Processes(ctx context.Context, ref string) (api.List[api.Process], error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.List[api.Process]{}, err
	}
	sb, err := l.need()
	if err != nil {
		return list(l.frozenProcesses(), presentProcess), nil
	}
	defer l.use(idle.Access)()
	all, err := sb.Files().Processes(ctx)
	return list(all, presentProcess), err
}
