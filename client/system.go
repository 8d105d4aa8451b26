package client

import (
	"context"
	"io"
	"net/http"

	"perdure.dev/perdure/api"
)

// Health asks whether the daemon answers.
func (c *Client) Health(ctx context.Context) (out api.Health, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/health", out: &out})
}

// Doctor asks what the daemon's machine can do.
func (c *Client) Doctor(ctx context.Context) (out api.DoctorReport, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/doctor", out: &out})
}

// Version asks for the daemon's version.
func (c *Client) Version(ctx context.Context) (out api.BuildInfo, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/version", out: &out})
}

// Artifact reads an artifact of a session, or of one that it was forked from.
func (c *Client) Artifact(ctx context.Context, session, id string) (io.ReadCloser, error) {
	return c.open(ctx, "/sessions/"+seg(session)+"/artifacts/"+seg(id), nil)
}
