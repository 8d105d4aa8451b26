package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// ExportSession begins to read a session as an archive. One that ends before its trailer is not whole; package portable tells.
func (c *Client) ExportSession(ctx context.Context, s string, req api.ExportSession) (io.ReadCloser, error) {
	q := url.Values{"no_memory": {strconv.FormatBool(req.NoMemory)}}
	if req.Checkpoint != "" {
		q.Set("checkpoint", req.Checkpoint)
	}
	return c.open(ctx, sessionPath(s)+":export", q)
}

// ImportSession makes a session of an archive. It is not repeated when the connection breaks.
func (c *Client) ImportSession(ctx context.Context, in api.ImportSession, archive io.Reader) (out api.Session, err error) {
	q := url.Values{"no_memory": {strconv.FormatBool(in.NoMemory)}}
	if in.Name != "" {
		q.Set("name", in.Name)
	}
	if _, err := c.Health(ctx); err != nil { // the body cannot be read twice: a stale connection must not meet it
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url("/sessions:import", q), io.NopCloser(archive))
	if err != nil {
		return out, errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "making the request")
	}
	c.authorize(req.Header)
	req.Header.Set("Content-Type", api.ArchiveType)
	res, err := c.send(req)
	var b *brokenError
	switch {
	case err == nil:
		return out, finish(res, &out)
	case ctx.Err() != nil:
		return out, contextError(ctx)
	case asBroken(err, &b):
		return out, errdefs.Wrap(b.err, errdefs.Unavailable, "connection_lost", "the connection broke while sending")
	}
	return out, err
}
