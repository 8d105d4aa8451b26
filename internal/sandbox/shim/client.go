package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Client is a sandbox, seen from the daemon.
type Client struct {
	dir  string
	cfg  Config
	http *http.Client
}

var _ sandbox.Sandbox = (*Client)(nil)

// idleConns is how many connections to a shim are kept. Long reads (wait, output) take one each.
const idleConns = 8

func newClient(dir string, cfg Config) *Client {
	return &Client{dir: dir, cfg: cfg, http: &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, dir) },
		MaxIdleConnsPerHost: idleConns,
		DisableCompression:  true,
	}}}
}

// dial connects to the socket in dir by way of an open directory, since socket paths are at most 107 bytes long.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketFile))
}

// ID returns the sandbox's id.
func (c *Client) ID() id.Sandbox { return c.cfg.Spec.ID }

// Config returns what the sandbox was made from.
func (c *Client) Config() Config { return c.cfg }

// Close lets go of idle connections. The sandbox is not touched.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// codeProtocol is the code of an answer that no shim of this build gives.
const codeProtocol = "shim_protocol"

// errGone means that nobody answers on the socket.
var errGone = errors.New("the shim does not answer")

// do sends a request and returns the answer, whose body the caller closes. Answers other than success become errors.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	target := url.URL{Scheme: "http", Host: "shim", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var e wireError
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Kind == "" {
		return nil, errdefs.New(errdefs.Internal, codeProtocol, "the shim answered %s", resp.Status)
	}
	return nil, e.err()
}

// call is do with a JSON body and answer.
func call[Resp any](ctx context.Context, c *Client, path string, req any) (Resp, error) {
	var resp Resp
	b, err := json.Marshal(req)
	if err != nil {
		return resp, err
	}
	r, err := c.do(ctx, http.MethodPost, path, nil, bytes.NewReader(b))
	if err != nil {
		return resp, err
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&resp); err != nil {
		if ctx.Err() != nil {
			return resp, context.Cause(ctx)
		}
		return resp, fmt.Errorf("%w: %w", errGone, err)
	}
	_, _ = io.Copy(io.Discard, r.Body) // to the end, so that the connection can be used again
	return resp, nil
}

// living is call for what needs a living sandbox: a shim that is gone becomes sandbox_dead.
func living[Resp any](ctx context.Context, c *Client, path string, req any) (Resp, error) {
	resp, err := call[Resp](ctx, c, path, req)
	return resp, c.explain(err)
}

// explain turns the silence of a dead shim into sandbox_dead.
func (c *Client) explain(err error) error {
	if !errors.Is(err, errGone) {
		return err
	}
	if alive, aerr := shimAlive(c.dir); aerr != nil || alive {
		return errdefs.Wrap(err, errdefs.Unavailable, "shim_unreachable", "talk to the shim of %s", c.ID())
	}
	return errDead(c.deadStatus().Cause)
}

// deadStatus is the status when no shim is left to ask.
func (c *Client) deadStatus() sandbox.Status {
	st := sandbox.Status{ID: c.ID(), State: sandbox.Dead, Cause: shimDied}
	if r, err := readRecord(c.dir); err == nil {
		st.StartedAt, st.Missing = r.StartedAt, r.Running.Missing
		if r.State == sandbox.Dead {
			st.Cause = r.Cause
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		st.Cause = "it was destroyed"
	}
	return st
}

// statusTimeout bounds how long Status waits for a shim.
const statusTimeout = 5 * time.Second

// dyingTime is how long Status takes a shim that does not listen for one that is ending: its files are closed one after the other, the
// socket maybe long before the lock.
const dyingTime = time.Second

// Status implements sandbox.Sandbox.
func (c *Client) Status(ctx context.Context) (sandbox.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	const pause = 10 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		st, err := call[sandbox.Status](ctx, c, pathStatus, none{})
		if !errors.Is(err, errGone) {
			return st, c.explain(err)
		}
		if alive, aerr := shimAlive(c.dir); aerr == nil && !alive {
			return c.deadStatus(), nil
		}
		if waited >= dyingTime || ctx.Err() != nil {
			return st, c.explain(err)
		}
		time.Sleep(pause)
	}
}

// Wait implements sandbox.Sandbox.
func (c *Client) Wait(ctx context.Context) (sandbox.Status, error) {
	st, err := patient[sandbox.Status](ctx, c, pathWait, none{})
	if !c.lost(err) {
		return st, err
	}
	if _, err := readConfig(c.dir); err == nil {
		if err := c.bury(); err != nil {
			return sandbox.Status{}, err
		}
	}
	return c.deadStatus(), nil
}

// patient is call for what waits long. A call that fails says nothing about the sandbox: there may be no file handle left to dial
// with. Only the lock tells of its death. So it is repeated until there is an answer, ctx ends, or the shim is gone (see lost).
func patient[Resp any](ctx context.Context, c *Client, path string, req any) (Resp, error) {
	const first, most = 5 * time.Millisecond, time.Second
	for pause := first; ; pause = min(2*pause, most) {
		resp, err := call[Resp](ctx, c, path, req)
		if !errors.Is(err, errGone) || c.lost(err) {
			return resp, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return resp, context.Cause(ctx)
		}
	}
}

// awaitExit waits until the shim's process is gone.
func (c *Client) awaitExit(ctx context.Context) error {
	lock, err := os.OpenFile(filepath.Join(c.dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var once sync.Once
	release := func() { once.Do(func() { lock.Close() }) }
	done := make(chan error, 1)
	go func() {
		defer release()
		done <- awaitShimExit(lock)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx) // the goroutine ends with the shim
	}
}

// Pause implements sandbox.Sandbox.
func (c *Client) Pause(ctx context.Context) error {
	_, err := living[none](ctx, c, pathPause, none{})
	return err
}

// Unpause implements sandbox.Sandbox.
func (c *Client) Unpause(ctx context.Context) error {
	_, err := living[none](ctx, c, pathUnpause, none{})
	return err
}

// RestoreReport implements sandbox.Sandbox.
func (c *Client) RestoreReport(ctx context.Context) (sandbox.RestoreReport, error) {
	return living[sandbox.RestoreReport](ctx, c, pathReport, none{})
}

// Hooks implements sandbox.Sandbox.
func (c *Client) Hooks(ctx context.Context, req sandbox.Hooks) ([]sandbox.HookRun, error) {
	return living[[]sandbox.HookRun](ctx, c, pathHooks, req)
}

// Destroy implements sandbox.Sandbox.
func (c *Client) Destroy(ctx context.Context) error { return c.destroy(ctx, destroyRequest{}) }

// destroyRetry is how long destroy waits before it asks a silent shim again, and startPatience how long it lets one start that already has
// a sandbox. Such a one waits for a guest, which may never answer: nothing is lost if it does not come to listen, and its caller waits.
const (
	destroyRetry  = 10 * time.Millisecond
	startPatience = 2 * time.Second
)

func (c *Client) destroy(ctx context.Context, req destroyRequest) error {
	for waited := time.Duration(0); ; waited += destroyRetry {
		_, err := call[none](ctx, c, pathDestroy, req)
		if err != nil && !errors.Is(err, errGone) {
			return err
		}
		// A shim that is alive and does not answer is about to end, or it is starting still for a daemon that has died: that one would
		// live on, so it is asked again until it listens.
		if alive, aerr := shimAlive(c.dir); err == nil || aerr != nil || !alive {
			break
		}
		if shim, starting := c.starting(); starting && waited >= startPatience {
			shim.Kill()
			req.Replaced = req.Replaced || c.cfg.Image != nil // it has not taken the spool over: see server.own
			break
		}
		select {
		case <-time.After(destroyRetry):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := c.awaitExit(ctx); err != nil {
		return err
	}
	if _, err := readConfig(c.dir); err == nil { // the shim did not live to clean up
		if err := c.clear(req); err != nil {
			return err
		}
	}
	c.Close()
	return emptyDir(c.dir)
}

// starting reports whether the shim has a sandbox and does not listen yet, so that it waits for a guest.
func (c *Client) starting() (Process, bool) {
	r, err := readRecord(c.dir)
	_, serr := os.Lstat(filepath.Join(c.dir, socketFile))
	return r.Shim, err == nil && len(r.Running.Processes) > 0 && errors.Is(serr, fs.ErrNotExist)
}

// clear ends what a dead shim left.
func (c *Client) clear(req destroyRequest) error {
	if req.Replaced {
		return reap(c.dir)
	}
	return c.bury()
}

// Execs implements sandbox.Sandbox.
func (c *Client) Execs() sandbox.Execs { return execs{c} }

// Files implements sandbox.Sandbox.
func (c *Client) Files() sandbox.Files { return files{c} }
