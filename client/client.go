package client

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
)

// Options say where the daemon is. One of Socket and Addr must be set.
type Options struct {
	Socket   string        // path of the Unix socket
	Addr     string        // host:port, or a URL
	Token    string        // for Addr
	RetryFor time.Duration // how long to go on trying to reach a daemon that does not answer; 0: 10 s, < 0: not at all
	// ReachFor is the same for a daemon that has never answered this client: nobody may be there at all. 0: as RetryFor.
	ReachFor time.Duration
	// Revive is called when nobody listens at Socket any more; it may start a daemon there. Its error, if any, is reported in the end, when
	// no daemon has come by itself either. May be nil.
	Revive func(context.Context) error
	// Waiting is called once in each time that the connection is gone for more than a second. May be nil.
	Waiting func()
	Clock   clock.Clock // nil: the machine's
}

// Client talks to one daemon.
type Client struct {
	base     url.URL
	token    string
	http     *http.Client
	retryFor time.Duration
	reachFor time.Duration
	reached  atomic.Bool // it has answered once
	revive   func(context.Context) error
	waiting  func()
	clock    clock.Clock
	where    string // for messages
	local    bool   // where is a socket
}

const (
	defaultRetryFor = 10 * time.Second
	dialTimeout     = 5 * time.Second
)

// New makes a client. It connects to nothing.
func New(o Options) (*Client, error) {
	c := &Client{token: o.Token, retryFor: o.RetryFor, reachFor: o.ReachFor, revive: o.Revive, waiting: o.Waiting, clock: o.Clock}
	if c.retryFor == 0 {
		c.retryFor = defaultRetryFor
	}
	if c.reachFor == 0 {
		c.reachFor = c.retryFor
	}
	if c.clock == nil {
		c.clock = clock.System{}
	}
	d := &net.Dialer{Timeout: dialTimeout}
	t := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, DisableCompression: true}
	c.http = &http.Client{Transport: t}
	switch {
	case o.Socket != "":
		c.where, c.local = o.Socket, true
		c.base = url.URL{Scheme: "http", Host: "perdure"}
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", o.Socket) }
	case o.Addr != "":
		c.where = o.Addr
		raw := o.Addr
		if !strings.Contains(raw, "://") {
			raw = "http://" + raw
		}
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, errdefs.New(errdefs.Invalid, "bad_address", "%q is not an address of a daemon", o.Addr).
				WithHint("Use HOST:PORT, or a URL with http or https.")
		}
		c.base = url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}
		t.Proxy = http.ProxyFromEnvironment
	default:
		return nil, errdefs.New(errdefs.Invalid, "bad_address", "neither a socket nor an address is given")
	}
	return c, nil
}

// Close gives idle connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Where is the socket or address of the daemon, for messages.
func (c *Client) Where() string { return c.where }

// url builds the URL of a path below /v1, whose elements are already escaped.
func (c *Client) url(path string, q url.Values) string {
	u := c.base.String() + "/v1" + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	return u
}

// seg escapes one element of a path. A colon is left to verbs.
func seg(s string) string { return strings.ReplaceAll(url.PathEscape(s), ":", "%3A") }

func (c *Client) authorize(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
}
