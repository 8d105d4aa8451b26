package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
)

func execPath(s, exec string) string { return sessionPath(s) + "/execs/" + seg(exec) }

// StartExec starts a command. Without an id it gets one here: the id makes repeats harmless, so that no key is needed, whose answer a daemon
// that dies meanwhile would take with it.
func (c *Client) StartExec(ctx context.Context, s string, in api.StartExec) (out api.Exec, err error) {
	if in.ID == "" {
		in.ID = string(id.NewExec())
	}
	return out, c.do(ctx, call{method: http.MethodPost, path: sessionPath(s) + "/execs", in: in, out: &out, safe: true})
}

// Exec shows a command.
func (c *Client) Exec(ctx context.Context, s, exec string) (out api.Exec, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: execPath(s, exec), out: &out})
}

// WaitExec returns when a command has ended.
func (c *Client) WaitExec(ctx context.Context, s, exec string) (out api.Exec, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: execPath(s, exec), query: url.Values{"wait": {"true"}}, out: &out})
}

// Execs lists a session's commands, oldest first.
func (c *Client) Execs(ctx context.Context, s string, page api.Page) (out api.List[api.Exec], err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: sessionPath(s) + "/execs", query: pageQuery(page), out: &out})
}

// SignalExec sends a signal, by name or number, to a command's process group.
func (c *Client) SignalExec(ctx context.Context, s, exec, signal string) error {
	return c.do(ctx, call{method: http.MethodPost, path: execPath(s, exec) + ":signal", in: api.SignalExec{Signal: signal}})
}

// ResizeExec sets the size of a command's terminal.
func (c *Client) ResizeExec(ctx context.Context, s, exec string, size api.TerminalSize) error {
	return c.do(ctx, call{method: http.MethodPost, path: execPath(s, exec) + ":resize", in: size})
}

// Output reads what a command wrote to "stdout" or "stderr" from a byte offset; with follow to the end of the stream, across broken
// connections.
func (c *Client) Output(ctx context.Context, s, exec, stream string, offset int64, follow bool) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	return &output{c: c, ctx: ctx, cancel: cancel, path: execPath(s, exec) + "/output/" + seg(stream), offset: offset, follow: follow, try: c.newRetry()}
}

// output is a stream that comes back after a broken connection.
type output struct {
	c      *Client
	ctx    context.Context // of the one call to Output; ends with Close
	cancel context.CancelFunc
	path   string
	offset int64
	follow bool
	body   io.ReadCloser
	try    *retry
}

func (o *output) Read(p []byte) (int, error) {
	for {
		if o.body == nil {
			q := url.Values{"offset": {strconv.FormatInt(o.offset, 10)}, "follow": {strconv.FormatBool(o.follow)}}
			body, err := o.c.open(o.ctx, o.path, q)
			if err != nil {
				return 0, err
			}
			o.body = body
		}
		n, err := o.body.Read(p)
		o.offset += int64(n)
		if n > 0 {
			o.try.ok()
			return n, nil
		}
		if err == io.EOF {
			return 0, io.EOF
		}
		if err != nil {
			o.body.Close()
			o.body = nil
			if err := o.try.again(o.ctx, broken(err)); err != nil {
				return 0, err
			}
		}
	}
}

// Close ends reading.
func (o *output) Close() error {
	o.cancel()
	if o.body != nil {
		return o.body.Close()
	}
	return nil
}

func asBroken(err error, b **brokenError) bool { return errors.As(err, b) }
