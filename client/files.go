package client

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

func filesPath(s, what string) string { return sessionPath(s) + "/files" + what }

// StatFile describes a file. Links are not followed.
func (c *Client) StatFile(ctx context.Context, s, path string) (out api.FileInfo, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: filesPath(s, ""), query: url.Values{"path": {path}}, out: &out})
}

// ListFiles lists a directory.
func (c *Client) ListFiles(ctx context.Context, s, path string) (out api.List[api.FileInfo], err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: filesPath(s, "/list"), query: url.Values{"path": {path}}, out: &out})
}

// RemoveFile removes a file or a tree.
func (c *Client) RemoveFile(ctx context.Context, s, path string, recursive bool) error {
	q := url.Values{"path": {path}, "recursive": {strconv.FormatBool(recursive)}}
	return c.do(ctx, call{method: http.MethodDelete, path: filesPath(s, ""), query: q})
}

// Mkdir makes a directory and its parents.
func (c *Client) Mkdir(ctx context.Context, s, path string) error {
	return c.do(ctx, call{method: http.MethodPut, path: filesPath(s, "/directory"), query: url.Values{"path": {path}}})
}

// ReadFile reads length bytes of a file from an offset; length < 0 reads to the end.
func (c *Client) ReadFile(ctx context.Context, s, path string, offset, length int64) (io.ReadCloser, error) {
	q := url.Values{"path": {path}, "offset": {strconv.FormatInt(offset, 10)}, "length": {strconv.FormatInt(max(length, -1), 10)}}
	return c.open(ctx, filesPath(s, "/content"), q)
}

// WriteFile replaces a file. Mode 0 keeps what it had. It is not repeated when the connection breaks, but then nothing was replaced.
func (c *Client) WriteFile(ctx context.Context, s, path string, mode fs.FileMode, data io.Reader) error {
	q := url.Values{"path": {path}}
	if mode != 0 {
		q.Set("mode", fmt.Sprintf("%o", mode.Perm()))
	}
	return c.put(ctx, filesPath(s, "/content"), q, "application/octet-stream", data)
}

// ReadTar reads a file or tree as a tar archive whose names start with the last element of path.
func (c *Client) ReadTar(ctx context.Context, s, path string) (io.ReadCloser, error) {
	return c.open(ctx, filesPath(s, "/tar"), url.Values{"path": {path}})
}

// WriteTar unpacks a tar archive below a directory.
func (c *Client) WriteTar(ctx context.Context, s, path string, archive io.Reader) error {
	return c.put(ctx, filesPath(s, "/tar"), url.Values{"path": {path}}, "application/x-tar", archive)
}

// Processes lists the processes of a workspace.
func (c *Client) Processes(ctx context.Context, s string) (out api.List[api.Process], err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s) + "/processes", out: &out})
}

// open starts a streamed answer. Making the connection is tried again, reading is not.
func (c *Client) open(ctx context.Context, path string, q url.Values) (io.ReadCloser, error) {
	try := c.newRetry()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(path, q), nil)
		if err != nil {
			return nil, errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "making the request")
		}
		c.authorize(req.Header)
		res, err := c.send(req)
		if err == nil {
			return res.Body, nil
		}
		if err := try.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// put streams a request's body. The body cannot be read twice, so a stale connection must not meet it: a small request goes before.
func (c *Client) put(ctx context.Context, path string, q url.Values, media string, body io.Reader) error {
	return c.putFor(ctx, path, q, media, body, nil)
}

// putFor is put for an answer that is wanted.
func (c *Client) putFor(ctx context.Context, path string, q url.Values, media string, body io.Reader, out any) error {
	if _, err := c.Health(ctx); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.url(path, q), io.NopCloser(body))
	if err != nil {
		return errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "making the request")
	}
	c.authorize(req.Header)
	req.Header.Set("Content-Type", media)
	res, err := c.send(req)
	var b *brokenError
	switch {
	case err == nil:
		return finish(res, out)
	case ctx.Err() != nil:
		return contextError(ctx)
	case asBroken(err, &b):
		return errdefs.Wrap(b.err, errdefs.Unavailable, "connection_lost", "the connection broke while sending")
	}
	return err
}
