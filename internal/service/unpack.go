package service

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"path"

	"perdure.dev/perdure/internal/archive"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// Small files of an archive are sent into the workspace together, up to so many of them and so many bytes. A larger file goes alone.
const (
	batchFiles = 512
	batchBytes = 256 << 10
)

// Unpack writes the files of a tar archive below a directory of the workspace.
func (s *Service) Unpack(ctx context.Context, ref, dir string, tar io.Reader) error {
	files, done, err := s.files(ctx, ref, dir)
	if err != nil {
		return err
	}
	defer done()
	u := unpacking{files: files}
	err = archive.Each(tar, func(err error) error {
		return errdefs.Wrap(err, errdefs.Invalid, "bad_archive", "reading the archive")
	}, func(e archive.Entry) error { return u.add(ctx, path.Join(dir, e.Name), e) })
	if err != nil {
		return err
	}
	return u.flush(ctx)
}

// unpacking collects small files.
type unpacking struct {
	files sandbox.Files
	batch []sandbox.NewFile
	bytes int
}

func (u *unpacking) add(ctx context.Context, p string, e archive.Entry) error {
	f := sandbox.NewFile{Path: p, Mode: e.Mode, Target: e.Target}
	switch e.Kind {
	case archive.Directory:
		f.Mode |= fs.ModeDir
	case archive.Symlink:
		f.Mode |= fs.ModeSymlink
	case archive.File:
		var large bool
		var err error
		if f.Data, large, err = readSmall(e.Body); err != nil {
			return errdefs.Wrap(err, errdefs.Invalid, "bad_archive", "reading the archive")
		}
		if large {
			if err := u.flush(ctx); err != nil {
				return err
			}
			return u.files.Write(ctx, p, e.Mode, io.MultiReader(bytes.NewReader(f.Data), e.Body))
		}
	default:
		return errdefs.New(errdefs.Invalid, "bad_archive", "%s is neither a file, a directory nor a symbolic link", e.Name)
	}
	if len(u.batch) == batchFiles || u.bytes+len(f.Data) > batchBytes {
		if err := u.flush(ctx); err != nil {
			return err
		}
	}
	u.batch = append(u.batch, f)
	u.bytes += len(f.Data)
	return nil
}

// readSmall reads a file, or the beginning of one that is too large for a batch.
func readSmall(body io.Reader) (data []byte, large bool, err error) {
	data, err = io.ReadAll(io.LimitReader(body, batchBytes+1))
	return data, len(data) > batchBytes, err
}

func (u *unpacking) flush(ctx context.Context) error {
	if len(u.batch) == 0 {
		return nil
	}
	err := u.files.Put(ctx, u.batch)
	u.batch, u.bytes = nil, 0
	return err
}
