package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/archive"
	"perdure.dev/perdure/internal/errdefs"
)

func (b *Backend) at(ref, p string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.find(ref)
	if rest, ok := strings.CutPrefix(p, "~"); ok {
		p = "/root" + rest
	}
	return filepath.Join(b.Root, p), err
}

func fileError(err error, p string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return errdefs.New(errdefs.NotFound, "file_not_found", "there is no file %s", p)
	}
	return errdefs.Wrap(err, errdefs.Conflict, "file_failed", "%s", p)
}

// ReadFile reads a file.
func (b *Backend) ReadFile(_ context.Context, ref, p string, offset, length int64) (io.ReadCloser, int64, error) {
	full, err := b.at(ref, p)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(full)
	if err != nil {
		return nil, 0, fileError(err, p)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fileError(err, p)
	}
	if length < 0 {
		length = info.Size()
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, offset, length), f}, info.Size(), nil
}

// WriteFile writes a file.
func (b *Backend) WriteFile(_ context.Context, ref, p string, mode fs.FileMode, data io.Reader) error {
	full, err := b.at(ref, p)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o644
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return fileError(err, p)
	}
	return fileError(os.WriteFile(full, body, mode), p)
}

func describe(info fs.FileInfo, dir, full string) api.FileInfo {
	out := api.FileInfo{
		Name: info.Name(), Path: filepath.Join(dir, info.Name()), Size: info.Size(), ModTime: info.ModTime(), Mode: fmt.Sprintf("%04o", info.Mode().Perm()), Type: api.TypeOther,
	}
	switch {
	case info.IsDir():
		out.Type = api.TypeDirectory
	case info.Mode().IsRegular():
		out.Type = api.TypeFile
	case info.Mode()&fs.ModeSymlink != 0:
		out.Type = api.TypeSymlink
		out.Target, _ = os.Readlink(full) // was a link a moment ago
	}
	return out
}

// Unpack writes an archive's files.
func (b *Backend) Unpack(ctx context.Context, ref, p string, tar io.Reader) error {
	return archive.Each(tar, func(err error) error {
		return errdefs.Wrap(err, errdefs.Invalid, "bad_archive", "reading the archive")
	}, func(e archive.Entry) error {
		name := path.Join(p, e.Name)
		switch e.Kind {
		case archive.File:
			return b.WriteFile(ctx, ref, name, e.Mode, e.Body)
		case archive.Directory:
			return b.Mkdir(ctx, ref, name, e.Mode)
		case archive.Symlink:
			full, err := b.at(ref, name)
			if err != nil {
				return err
			}
			return fileError(os.Symlink(e.Target, full), name)
		}
		return errdefs.New(errdefs.Invalid, "bad_archive", "%s is of another kind", e.Name)
	})
}

// ListFiles lists a directory.
func (b *Backend) ListFiles(_ context.Context, ref, p string) (api.List[api.FileInfo], error) {
	var out api.List[api.FileInfo]
	full, err := b.at(ref, p)
	if err != nil {
		return out, err
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		return out, fileError(err, p)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return out, fileError(err, p)
		}
		out.Data = append(out.Data, describe(info, p, filepath.Join(full, e.Name())))
	}
	return out, nil
}

// StatFile describes a file.
func (b *Backend) StatFile(_ context.Context, ref, p string) (api.FileInfo, error) {
	full, err := b.at(ref, p)
	if err != nil {
		return api.FileInfo{}, err
	}
	info, err := os.Lstat(full)
	if err != nil {
		return api.FileInfo{}, fileError(err, p)
	}
	return describe(info, filepath.Dir(p), full), nil
}

// RemoveFile removes a file.
func (b *Backend) RemoveFile(_ context.Context, ref, p string, recursive bool) error {
	full, err := b.at(ref, p)
	switch {
	case err != nil:
		return err
	case recursive:
		return fileError(os.RemoveAll(full), p)
	}
	if err := os.Remove(full); !errors.Is(err, fs.ErrNotExist) {
		return fileError(err, p)
	}
	return nil
}

// Mkdir makes a directory.
func (b *Backend) Mkdir(_ context.Context, ref, p string, mode fs.FileMode) error {
	full, err := b.at(ref, p)
	if err != nil {
		return err
	}
	return fileError(os.MkdirAll(full, mode), p)
}

// Processes lists one.
func (b *Backend) Processes(_ context.Context, ref string) (api.List[api.Process], error) {
	_, err := b.at(ref, "/")
	return api.List[api.Process]{Data: []api.Process{{PID: 7, PPID: 1, Args: []string{"sleep", "60"}, State: "S", RSSBytes: 1 << 20}}}, err
}
