package shim

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// files is the client's sandbox.Files.
type files struct{ c *Client }

func (f files) Read(ctx context.Context, path string, offset, length int64) (io.ReadCloser, int64, error) {
	q := url.Values{"path": {path}, "offset": {strconv.FormatInt(offset, 10)}, "length": {strconv.FormatInt(length, 10)}}
	resp, err := f.c.do(ctx, http.MethodGet, pathFileRead, q, nil)
	if err != nil {
		return nil, 0, f.c.explain(err)
	}
	size, err := strconv.ParseInt(resp.Header.Get(headerSize), 10, 64)
	if err != nil {
		resp.Body.Close()
		return nil, 0, errdefs.Wrap(err, errdefs.Internal, "shim_protocol", "read the size of %s", path)
	}
	return resp.Body, size, nil
}

func (f files) Write(ctx context.Context, path string, mode fs.FileMode, data io.Reader) error {
	q := url.Values{"path": {path}, "mode": {strconv.FormatUint(uint64(mode), 8)}}
	// NopCloser: the reader stays the caller's.
	resp, err := f.c.do(ctx, http.MethodPut, pathFileWrite, q, io.NopCloser(data))
	if err != nil {
		return f.c.explain(err)
	}
	return resp.Body.Close()
}

func (f files) Put(ctx context.Context, list []sandbox.NewFile) error {
	_, err := living[none](ctx, f.c, pathFilePut, list)
	return err
}

func (f files) List(ctx context.Context, path string) ([]sandbox.FileInfo, error) {
	return living[[]sandbox.FileInfo](ctx, f.c, pathFileList, fileRequest{Path: path})
}

func (f files) Stat(ctx context.Context, path string) (sandbox.FileInfo, error) {
	return living[sandbox.FileInfo](ctx, f.c, pathFileStat, fileRequest{Path: path})
}

func (f files) Remove(ctx context.Context, path string, recursive bool) error {
	_, err := living[none](ctx, f.c, pathFileRemove, fileRequest{Path: path, Recursive: recursive})
	return err
}

func (f files) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	_, err := living[none](ctx, f.c, pathFileMkdir, fileRequest{Path: path, Mode: uint32(mode)})
	return err
}

func (f files) Processes(ctx context.Context) ([]sandbox.Process, error) {
	return living[[]sandbox.Process](ctx, f.c, pathProcesses, none{})
}

func (f files) Watch(ctx context.Context, path string) (<-chan sandbox.FileChange, error) {
	resp, err := f.c.do(ctx, http.MethodGet, pathFileWatch, url.Values{"path": {path}}, nil)
	if err != nil {
		return nil, f.c.explain(err)
	}
	changes := make(chan sandbox.FileChange)
	// Ends with ctx, which cuts the response, or with the shim.
	go func() {
		defer close(changes)
		defer resp.Body.Close()
		dec := json.NewDecoder(resp.Body)
		for {
			var ch sandbox.FileChange
			if dec.Decode(&ch) != nil {
				return
			}
			select {
			case changes <- ch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return changes, nil
}
