package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

func sessionPath(s string) string { return "/sessions/" + seg(s) }

// CreateSession makes a session; with a goal it starts to work.
func (c *Client) CreateSession(ctx context.Context, in api.CreateSession) (out api.Session, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: "/sessions", in: in, out: &out})
}

// Session shows a session.
func (c *Client) Session(ctx context.Context, s string) (out api.Session, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s), out: &out})
}

// Sessions lists sessions.
func (c *Client) Sessions(ctx context.Context, page api.Page) (out api.List[api.Session], err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/sessions", query: pageQuery(page), out: &out})
}

// DeleteSession deletes a session with all that belongs to it.
func (c *Client) DeleteSession(ctx context.Context, s string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sessionPath(s)})
}

// CancelSession asks the turn in progress to stop.
func (c *Client) CancelSession(ctx context.Context, s string, in api.CancelSession) (out api.Session, err error) {
	return out, c.verb(ctx, s, "cancel", in, &out)
}

// ConfigureSession changes what can be changed of a session.
func (c *Client) ConfigureSession(ctx context.Context, s string, in api.ConfigureSession) (out api.Session, err error) {
	return out, c.do(ctx, call{method: http.MethodPatch, path: sessionPath(s), in: in, out: &out})
}

// PauseSession stops the workspace's CPU.
func (c *Client) PauseSession(ctx context.Context, s string) (out api.Session, err error) {
	return out, c.verb(ctx, s, "pause", nil, &out)
}

// SuspendSession brings the workspace's RAM to the store.
func (c *Client) SuspendSession(ctx context.Context, s string) (out api.Session, err error) {
	return out, c.verb(ctx, s, "suspend", nil, &out)
}

// StopSession keeps the workspace's files only.
func (c *Client) StopSession(ctx context.Context, s string) (out api.Session, err error) {
	return out, c.verb(ctx, s, "stop", nil, &out)
}

// ResumeSession reverses any of pause, suspend and stop.
func (c *Client) ResumeSession(ctx context.Context, s string) (out api.Session, err error) {
	return out, c.verb(ctx, s, "resume", nil, &out)
}

// WaitSession returns when the session is in one of the states. A timeout of 0 is none; the error then has the kind timeout.
func (c *Client) WaitSession(ctx context.Context, s string, states []string, timeout time.Duration) (out api.Session, err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		// The daemon reports the timeout; this one is for a daemon that does not.
		ctx, cancel = context.WithTimeoutCause(ctx, timeout+time.Second, errdefs.New(errdefs.Timeout, "wait_timeout", "%s is not in the state after %s", s, timeout))
		defer cancel()
	}
	in := api.WaitSession{For: states, TimeoutMS: timeout.Milliseconds()}
	return out, c.do(ctx, call{method: http.MethodPost, path: sessionPath(s) + ":wait", in: in, out: &out, safe: true})
}

func (c *Client) verb(ctx context.Context, s, verb string, in, out any) error {
	return c.do(ctx, call{method: http.MethodPost, path: sessionPath(s) + ":" + verb, in: in, out: out})
}

// ListEvents lists events after a seq.
func (c *Client) ListEvents(ctx context.Context, s string, after uint64, limit int) (out api.List[api.Event], err error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s) + "/events", query: q, out: &out})
}

// SendMessages sends messages to a session.
func (c *Client) SendMessages(ctx context.Context, s string, in api.SendMessages) (out api.List[api.Event], err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: sessionPath(s) + "/events", in: in, out: &out})
}

// Timeline shows what the session's model sees.
func (c *Client) Timeline(ctx context.Context, s string) (out api.Timeline, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s) + "/timeline", out: &out})
}

// TimelineEvents lists the events on a session's timeline, an ancestor's part first, after the one with the id after.
func (c *Client) TimelineEvents(ctx context.Context, s, after string, limit int) (out api.List[api.Event], err error) {
	q := url.Values{}
	if after != "" {
		q.Set("after", after)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s) + "/timeline/events", query: q, out: &out})
}

// Diff compares two of S and S@CKPT.
func (c *Client) Diff(ctx context.Context, a, b string) (out api.Diff, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/diff", query: url.Values{"a": {a}, "b": {b}}, out: &out})
}

func pageQuery(p api.Page) url.Values {
	q := url.Values{}
	if p.Limit > 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.After != "" {
		q.Set("after", p.After)
	}
	return q
}
