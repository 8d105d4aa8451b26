package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// Events follows a session after a seq: stored events, then live ones with deltas in between, until ctx ends (which yields no error), the
// caller stops, or an error that is yielded last. See the package comment for what it guarantees.
func (c *Client) Events(ctx context.Context, session string, after uint64) iter.Seq2[api.StreamItem, error] {
	return func(yield func(api.StreamItem, error) bool) {
		f := &follower{c: c, session: session, cursor: after, yield: yield, try: c.newRetry()}
		for {
			err := f.connect(ctx)
			if f.stopped || ctx.Err() != nil {
				return
			}
			if err := f.try.again(ctx, err); err != nil {
				if ctx.Err() == nil {
					yield(api.StreamItem{}, err)
				}
				return
			}
		}
	}
}

// follower is one reading of a stream.
type follower struct {
	c       *Client
	session string
	cursor  uint64 // the seq of the last event yielded
	yield   func(api.StreamItem, error) bool
	stopped bool // by the caller
	try     *retry
}

// connect reads the stream once, from the cursor. It returns why it ended.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u := f.c.url("/sessions/"+seg(f.session)+"/events/stream", url.Values{"after": {strconv.FormatUint(f.cursor, 10)}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "making the request")
	}
	f.c.authorize(req.Header)
	req.Header.Set("Accept", "text/event-stream")
	res, err := f.c.send(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	f.try.ok()
	d := newDecoder(res.Body)
	for {
		m, err := d.next()
		if err != nil {
			return broken(err)
		}
		if err := f.take(m); err != nil || f.stopped {
			return err
		}
	}
}

// take passes one message on. The cursor moves with durable events alone.
func (f *follower) take(m message) error {
	switch m.event {
	case "":
		var ev api.Event
		if err := json.Unmarshal(m.data, &ev); err != nil {
			return errdefs.Wrap(err, errdefs.Internal, "bad_answer", "reading an event")
		}
		switch {
		case ev.Seq <= f.cursor:
			return nil // already yielded
		case ev.Seq != f.cursor+1:
			return broken(io.ErrUnexpectedEOF) // something is missing: ask again from the cursor
		}
		f.cursor = ev.Seq
		f.stopped = !f.yield(api.StreamItem{Event: &ev}, nil)
	case api.DeltaEvent:
		var delta api.Delta
		if json.Unmarshal(m.data, &delta) == nil {
			f.stopped = !f.yield(api.StreamItem{Delta: &delta}, nil)
		}
	case api.ErrorEvent:
		var p api.Problem
		if err := json.Unmarshal(m.data, &p); err != nil {
			return errdefs.Wrap(err, errdefs.Internal, "bad_answer", "reading an error")
		}
		return p.Err()
	}
	return nil
}
