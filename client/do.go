package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// call is one JSON request.
type call struct {
	method string
	path   string
	query  url.Values
	in     any  // nil: no body
	out    any  // nil: the answer has no body of interest
	safe   bool // a POST that may be repeated as it is: needs no key
}

// do makes a request, again if need be, until it is answered.
func (c *Client) do(ctx context.Context, r call) error {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return errdefs.Wrap(err, errdefs.Internal, "internal", "encoding the request")
		}
	}
	key := ""
	if r.method == http.MethodPost && !r.safe {
		key = rand.Text()
	}
	try := c.newRetry()
	for {
		res, err := c.roundTrip(ctx, r.method, c.url(r.path, r.query), body, key)
		if err == nil {
			err = finish(res, r.out)
		}
		if err == nil {
			return nil
		}
		if err := try.again(ctx, err); err != nil {
			return err
		}
	}
}

func (c *Client) roundTrip(ctx context.Context, method, u string, body []byte, key string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "making the request")
	}
	c.authorize(req.Header)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return c.send(req)
}

// send makes one attempt. A failure of the connection is a *brokenError; an answer of 400 or more is the API's error.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	res, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the URL says nothing to people
		}
		return nil, &brokenError{err}
	}
	c.reached.Store(true)
	if res.StatusCode >= 400 {
		defer res.Body.Close()
		return nil, problemOf(res)
	}
	return res, nil
}

// finish reads an answer.
func finish(res *http.Response, out any) error {
	defer res.Body.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, res.Body)
		return broken(err)
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return broken(err)
	}
	return errdefs.Wrap(json.Unmarshal(data, out), errdefs.Internal, "bad_answer", "the daemon's answer is not what this client expects")
}

// problemOf reads an error.
func problemOf(res *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return broken(err)
	}
	var p api.Problem
	if strings.HasPrefix(res.Header.Get("Content-Type"), api.ProblemType) && json.Unmarshal(data, &p) == nil && p.Code != "" {
		return p.Err()
	}
	kind := errdefs.Internal
	if res.StatusCode == http.StatusBadGateway || res.StatusCode == http.StatusServiceUnavailable {
		kind = errdefs.Unavailable
	}
	return errdefs.New(kind, "bad_answer", "%s", res.Status).WithHint("This is not the answer of a Perdure daemon; check the address.")
}

// brokenError is a connection that could not be made or did not last.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

func broken(err error) error {
	if err == nil {
		return nil
	}
	return &brokenError{err}
}

// retry decides whether to try again, and waits.
type retry struct {
	c     *Client
	since time.Time // of the first failure in a row
	n     int
	told  bool  // that the connection is gone
	dead  error // why no daemon could be started
}

func (c *Client) newRetry() *retry { return &retry{c: c} }

// ok notes that the daemon answered.
func (r *retry) ok() {
	r.n, r.told, r.dead = 0, false, nil
	r.c.reached.Store(true)
}

const (
	firstWait = 20 * time.Millisecond
	longWait  = time.Second
	tellAfter = time.Second
)

// again returns nil after a wait if the request is to be made again, and the error to report otherwise.
func (r *retry) again(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	inFlight := errdefs.CodeOf(err) == "idempotency_in_flight"
	var b *brokenError
	if !inFlight && !errors.As(err, &b) && errdefs.CodeOf(err) != "daemon_stopping" {
		return err
	}
	now := r.c.clock.Now()
	if r.n == 0 {
		r.since = now
	}
	r.n++
	// The daemon that says "in flight" is there, so that wait has no limit but the caller's.
	limit := r.c.retryFor
	if !r.c.reached.Load() {
		limit = r.c.reachFor
	}
	if !inFlight && r.c.revive != nil && nobodyListens(err) {
		r.dead = r.c.revive(ctx)
	}
	if !inFlight && now.Sub(r.since) >= limit {
		return r.c.unreachable(err, r.dead)
	}
	if !inFlight && !r.told && r.c.waiting != nil && now.Sub(r.since) >= tellAfter {
		r.told = true
		r.c.waiting()
	}
	wait := min(firstWait<<min(r.n-1, 10), longWait)
	if r.c.clock.Sleep(ctx, wait) != nil {
		return contextError(ctx)
	}
	return nil
}

// nobodyListens reports whether a connection failed since the socket is not there or belongs to nobody.
func nobodyListens(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// unreachable is the error when nobody has come; dead, if any, says why no daemon could be started.
func (c *Client) unreachable(err, dead error) error {
	if dead != nil {
		return dead
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op // what is around it tells of requests, which people did not make
	}
	e := &errdefs.Error{Kind: errdefs.Unavailable, Code: "daemon_unreachable", Message: "no daemon answers at " + c.where, Err: err}
	if c.local {
		return e.WithHint("Start one with: perdure serve. See daemon.log in its data directory if it does not stay up.")
	}
	return e.WithHint("Check the address, and that the daemon there was started with: perdure serve --listen ADDR")
}

// contextError is the reason for which the caller gave up, with a kind.
func contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	var typed *errdefs.Error
	switch {
	case errors.As(cause, &typed):
		return cause
	case errors.Is(cause, context.DeadlineExceeded):
		return errdefs.Wrap(cause, errdefs.Timeout, "timeout", "the time limit was reached")
	}
	return errdefs.Wrap(cause, errdefs.Unavailable, "canceled", "the request was given up")
}
