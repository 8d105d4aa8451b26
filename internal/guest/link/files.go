package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/sandbox"
)

// files implements sandbox.Files.
type files struct{ l *Link }

func decode(data json.RawMessage, v any) error {
	return errdefs.Wrap(json.Unmarshal(data, v), errdefs.Internal, "guest_reply", "understanding the guest")
}

// Read implements sandbox.Files. The reader fetches piece by piece and fails with file_changed when the path comes to
// name another file meanwhile; ctx must live as long as the reader.
func (f files) Read(ctx context.Context, path string, offset, length int64) (io.ReadCloser, int64, error) {
	if offset < 0 {
		return nil, 0, errdefs.New(errdefs.Invalid, "offset_invalid", "offset %d is negative", offset)
	}
	if length < 0 {
		length = 1<<62 - offset
	}
	rd := &fileReader{ctx: ctx, files: f, path: path, offset: offset, left: length}
	if err := rd.fetch(); err != nil {
		return nil, 0, err
	}
	return rd, rd.size, nil
}

type fileReader struct {
	ctx          context.Context // of the Read call, as documented there
	files        files
	path         string
	offset, left int64
	size         int64
	inode        uint64
	piece        []byte
	eof          bool
}

func (r *fileReader) fetch() error {
	args := wire.ReadArgs{Path: r.path, Offset: r.offset, Length: min(r.left, wire.MaxBlob), Inode: r.inode}
	var res wire.ReadResult
	blob, err := r.files.l.call(r.ctx, wire.MethodFileRead, args, nil, &res)
	if err != nil {
		return err
	}
	r.piece, r.size, r.inode = blob, res.Size, res.Inode
	r.offset += int64(len(blob))
	r.left -= int64(len(blob))
	r.eof = r.left <= 0 || int64(len(blob)) < args.Length
	return nil
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.piece) == 0 {
		if r.eof {
			return 0, io.EOF
		}
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *fileReader) Close() error { return nil }

// Write implements sandbox.Files. A small file takes one request.
func (f files) Write(ctx context.Context, path string, mode fs.FileMode, data io.Reader) error {
	args := wire.WriteArgs{Upload: rand.Text(), Path: path, Mode: mode}
	buf := make([]byte, wire.MaxBlob)
	for {
		n, err := io.ReadFull(data, buf)
		args.Commit = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !args.Commit {
			if args.Offset > 0 {
				args.Abort = true
				f.l.call(ctx, wire.MethodFileWrite, args, nil, nil) // the source's error is the one to report
			}
			return errdefs.Wrap(err, errdefs.Invalid, "file_source", "reading what should be written to %s", path)
		}
		if _, err := f.l.call(ctx, wire.MethodFileWrite, args, bytes.Clone(buf[:n]), nil); err != nil || args.Commit {
			return err
		}
		args.Offset += int64(n)
	}
}

// putBatch bounds the files of one request.
const putBatch = 512

// Put implements sandbox.Files. As many files as fit travel in one request.
func (f files) Put(ctx context.Context, list []sandbox.NewFile) error {
	for len(list) > 0 {
		var args wire.PutArgs
		var blob []byte
		n := 0
		for ; n < len(list) && n < putBatch; n++ {
			next := list[n]
			if len(blob)+len(next.Data) > wire.MaxBlob {
				break
			}
			args.Files = append(args.Files, wire.NewFile{Path: next.Path, Mode: next.Mode, Target: next.Target, Size: int64(len(next.Data))})
			blob = append(blob, next.Data...)
		}
		if n == 0 { // one that is too large for it
			if err := f.Write(ctx, list[0].Path, list[0].Mode.Perm(), bytes.NewReader(list[0].Data)); err != nil {
				return err
			}
			n = 1
		} else if _, err := f.l.call(ctx, wire.MethodFilePut, args, blob, nil); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// entryBytes is about what an entry of a directory takes besides its names.
const entryBytes = 64

// List implements sandbox.Files. Error: directory_too_large.
func (f files) List(ctx context.Context, path string) ([]sandbox.FileInfo, error) {
	var list []sandbox.FileInfo
	size := 0
	args := wire.ListArgs{Path: path}
	for {
		var res wire.ListResult
		if _, err := f.l.call(ctx, wire.MethodFileList, args, nil, &res); err != nil {
			return nil, err
		}
		for _, e := range res.Entries {
			if size += len(e.Name) + len(e.Target) + entryBytes; size > maxListing {
				return nil, errdefs.New(errdefs.Exhausted, "directory_too_large", "%s holds too many files to list", path).
					WithHint("list it with a command")
			}
			list = append(list, infoFromWire(e))
		}
		if !res.More || len(res.Entries) == 0 {
			return list, nil
		}
		last := res.Entries[len(res.Entries)-1].Name
		if last <= args.After {
			return nil, errdefs.New(errdefs.Internal, "guest_reply", "the list of %s does not get on after %q", path, clip(last))
		}
		args.After = last
	}
}

// Stat implements sandbox.Files.
func (f files) Stat(ctx context.Context, path string) (sandbox.FileInfo, error) {
	var res wire.FileInfo
	_, err := f.l.call(ctx, wire.MethodFileStat, wire.PathArgs{Path: path}, nil, &res)
	return infoFromWire(res), err
}

// Remove implements sandbox.Files.
func (f files) Remove(ctx context.Context, path string, recursive bool) error {
	_, err := f.l.call(ctx, wire.MethodFileRemove, wire.RemoveArgs{Path: path, Recursive: recursive}, nil, nil)
	return err
}

// Mkdir implements sandbox.Files.
func (f files) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	_, err := f.l.call(ctx, wire.MethodFileMkdir, wire.MkdirArgs{Path: path, Mode: mode}, nil, nil)
	return err
}

// Processes implements sandbox.Files.
func (f files) Processes(ctx context.Context) ([]sandbox.Process, error) {
	var res wire.ProcessesResult
	_, err := f.l.call(ctx, wire.MethodProcesses, nil, nil, &res)
	return processesFromWire(res.Processes), err
}
