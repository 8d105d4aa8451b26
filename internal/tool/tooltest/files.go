package tooltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

type files struct{}

func mapped(err error, path string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return errdefs.New(errdefs.NotFound, "file_not_found", "%s does not exist", path)
	case errors.Is(err, fs.ErrPermission):
		return errdefs.New(errdefs.Denied, "file_denied", "%s may not be used", path)
	}
	return errdefs.Wrap(err, errdefs.Invalid, "file_error", "%s", path)
}

func (files) Read(_ context.Context, path string, offset, length int64) (io.ReadCloser, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, mapped(err, path)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = errdefs.New(errdefs.Invalid, "is_a_directory", "%s is a directory", path)
	}
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	if length < 0 {
		return f, info.Size(), nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, length), f}, info.Size(), nil
}

func (files) Write(_ context.Context, path string, mode fs.FileMode, data io.Reader) error {
	if mode == 0 {
		mode = 0o644
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
	}
	b, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return mapped(err, path)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return mapped(err, path)
	}
	return mapped(os.Rename(tmp, path), path)
}

func (f files) List(ctx context.Context, path string) ([]sandbox.FileInfo, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, mapped(err, path)
	}
	var out []sandbox.FileInfo
	for _, e := range entries {
		if info, err := f.Stat(ctx, filepath.Join(path, e.Name())); err == nil {
			out = append(out, info)
		}
	}
	return out, nil
}

func (files) Stat(_ context.Context, path string) (sandbox.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return sandbox.FileInfo{}, mapped(err, path)
	}
	out := sandbox.FileInfo{Name: info.Name(), Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime()}
	if info.Mode()&fs.ModeSymlink != 0 {
		out.Target, err = os.Readlink(path)
	}
	return out, mapped(err, path)
}

func (files) Remove(_ context.Context, path string, recursive bool) error {
	if recursive {
		return mapped(os.RemoveAll(path), path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return mapped(err, path)
	}
	return nil
}

func (files) Mkdir(_ context.Context, path string, mode fs.FileMode) error {
	return mapped(os.MkdirAll(path, mode), path)
}

func (f files) Put(ctx context.Context, list []sandbox.NewFile) error {
	for _, n := range list {
		var err error
		switch n.Mode.Type() {
		case fs.ModeDir:
			err = f.Mkdir(ctx, n.Path, n.Mode.Perm())
		case fs.ModeSymlink:
			err = mapped(os.Symlink(n.Target, n.Path), n.Path)
		default:
			err = f.Write(ctx, n.Path, n.Mode, bytes.NewReader(n.Data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (files) Watch(context.Context, string) (<-chan sandbox.FileChange, error) {
	return nil, errors.ErrUnsupported
}

func (files) Processes(context.Context) ([]sandbox.Process, error) { return nil, nil }
