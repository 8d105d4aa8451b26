package client

import (
	"context"
	"net/http"
	"strconv"

	"perdure.dev/perdure/api"
)

// ForwardPort has the daemon listen on a port for a session, until it is removed.
func (c *Client) ForwardPort(ctx context.Context, s string, in api.ForwardPort) (out api.Port, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: sessionPath(s) + "/ports", in: in, out: &out})
}

// Ports lists the forwarded ports of a session.
func (c *Client) Ports(ctx context.Context, s string) (out api.List[api.Port], err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s) + "/ports", out: &out})
}

// RemovePort ends a forward and its connections.
func (c *Client) RemovePort(ctx context.Context, s string, local uint16) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sessionPath(s) + "/ports/" + strconv.Itoa(int(local))})
}
