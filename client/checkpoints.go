package client

import (
	"context"
	"net/http"
	"net/url"

	"perdure.dev/perdure/api"
)

// CreateCheckpoint takes a checkpoint.
func (c *Client) CreateCheckpoint(ctx context.Context, s string, in api.CreateCheckpoint) (out api.Checkpoint, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: sessionPath(s) + "/checkpoints", in: in, out: &out})
}

// Checkpoints lists a session's checkpoints, oldest first.
func (c *Client) Checkpoints(ctx context.Context, s string, page api.Page) (out api.List[api.Checkpoint], err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s) + "/checkpoints", query: pageQuery(page), out: &out})
}

// Checkpoint shows a checkpoint.
func (c *Client) Checkpoint(ctx context.Context, id string) (out api.Checkpoint, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/checkpoints/" + seg(id), out: &out})
}

// DeleteCheckpoint deletes a checkpoint.
func (c *Client) DeleteCheckpoint(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/checkpoints/" + seg(id)})
}

// ForkSession makes sessions that start from a checkpoint of this one.
func (c *Client) ForkSession(ctx context.Context, s string, in api.ForkSession) (out api.List[api.Session], err error) {
	return out, c.verb(ctx, s, "fork", in, &out)
}

// RollbackSession brings a session back to a checkpoint, or says what that would change.
func (c *Client) RollbackSession(ctx context.Context, s string, in api.RollbackSession) (out api.RollbackPlan, err error) {
	return out, c.verb(ctx, s, "rollback", in, &out)
}

// UndoSession goes back to before the last rollback.
func (c *Client) UndoSession(ctx context.Context, s string) (out api.RollbackPlan, err error) {
	return out, c.verb(ctx, s, "undo", nil, &out)
}

// RecoverSession brings a damaged or lost session to the newest state that verifies, or says what that would be.
func (c *Client) RecoverSession(ctx context.Context, s string, in api.RecoverSession) (out api.RecoverReport, err error) {
	return out, c.verb(ctx, s, "recover", in, &out)
}

// VerifySession checks a session's log, manifests and stored content.
func (c *Client) VerifySession(ctx context.Context, s string) (out api.VerifyReport, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: sessionPath(s) + ":verify", out: &out, safe: true})
}

// CheckStorage reads all that is stored of checkpoints, and heals it if asked to.
func (c *Client) CheckStorage(ctx context.Context, in api.CheckStorage) (out api.StorageReport, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: "/checkpoints:verify", in: in, out: &out, safe: true})
}

// StorageUsage says what checkpoints take: of a session with its relatives, or of all if it is empty.
func (c *Client) StorageUsage(ctx context.Context, session string) (out api.StorageUsage, err error) {
	q := url.Values{}
	if session != "" {
		q.Set("session", session)
	}
	return out, c.do(ctx, call{method: http.MethodGet, path: "/checkpoints:usage", query: q, out: &out})
}
