package shim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// execs is the client's sandbox.Execs. What only reads falls back to the spool when the shim is gone.
type execs struct{ c *Client }

func (e execs) Start(ctx context.Context, spec sandbox.ExecSpec) (sandbox.ExecStatus, error) {
	st, err := call[sandbox.ExecStatus](ctx, e.c, pathExecStart, spec)
	if e.c.lost(err) {
		// Idempotent to the end: a command that ran is answered for, also by the dead.
		if st, serr := e.Status(ctx, spec.ID); serr == nil {
			return st, nil
		}
	}
	return st, e.c.explain(err)
}

// Run takes one round trip. A call that breaks is repeated: the id makes that harmless.
func (e execs) Run(ctx context.Context, spec sandbox.ExecSpec, limit int) (sandbox.ExecResult, error) {
	res, err := patient[sandbox.ExecResult](ctx, e.c, pathExecRun, runRequest{Spec: spec, Limit: limit})
	if !e.c.lost(err) {
		return res, e.c.explain(err)
	}
	return readSpool(e.c, func(s spoolReader) (sandbox.ExecResult, error) {
		defer s.Close()
		st, serr := s.status(spec.ID)
		if serr != nil { // it was never heard of
			return sandbox.ExecResult{}, e.c.explain(err)
		}
		return s.result(ctx, st, limit)
	})
}

func (e execs) Status(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	st, err := call[sandbox.ExecStatus](ctx, e.c, pathExecStatus, exec)
	if e.c.lost(err) {
		return readSpool(e.c, func(s spoolReader) (sandbox.ExecStatus, error) { defer s.Close(); return s.status(exec) })
	}
	return st, e.c.explain(err)
}

func (e execs) List(ctx context.Context) ([]sandbox.ExecStatus, error) {
	list, err := call[[]sandbox.ExecStatus](ctx, e.c, pathExecList, none{})
	if e.c.lost(err) {
		return readSpool(e.c, func(s spoolReader) ([]sandbox.ExecStatus, error) { defer s.Close(); return s.list(), nil })
	}
	return list, e.c.explain(err)
}

func (e execs) Wait(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	st, err := patient[sandbox.ExecStatus](ctx, e.c, pathExecWait, exec)
	if !e.c.lost(err) {
		return st, err
	}
	return readSpool(e.c, func(s spoolReader) (sandbox.ExecStatus, error) { defer s.Close(); return s.status(exec) })
}

func (e execs) Signal(ctx context.Context, exec id.Exec, signal int) error {
	_, err := living[none](ctx, e.c, pathExecSignal, execRequest{ID: exec, Signal: signal})
	return err
}

func (e execs) Stdin(ctx context.Context, exec id.Exec, offset int64, data []byte, eof bool) error {
	q := url.Values{"id": {string(exec)}, "offset": {strconv.FormatInt(offset, 10)}}
	if eof {
		q.Set("eof", "1")
	}
	resp, err := e.c.do(ctx, http.MethodPut, pathExecStdin, q, bytes.NewReader(data))
	if errdefs.CodeOf(err) == codeProtocol { // a shim of a build before this way was there
		_, err = living[none](ctx, e.c, pathExecStdin, execRequest{ID: exec, Offset: offset, Data: data, EOF: eof})
		return err
	}
	if err != nil {
		return e.c.explain(err)
	}
	return resp.Body.Close()
}

func (e execs) Resize(ctx context.Context, exec id.Exec, size sandbox.TerminalSize) error {
	_, err := living[none](ctx, e.c, pathExecResize, execRequest{ID: exec, Size: size})
	return err
}

func (e execs) Output(ctx context.Context, exec id.Exec, stream sandbox.Stream, offset int64, follow bool) (io.ReadCloser, error) {
	q := url.Values{"id": {string(exec)}, "stream": {string(stream)}, "offset": {strconv.FormatInt(offset, 10)}}
	if follow {
		q.Set("follow", "1")
	}
	resp, err := e.c.do(ctx, http.MethodGet, pathExecOutput, q, nil)
	if e.c.lost(err) {
		return readSpool(e.c, func(s spoolReader) (io.ReadCloser, error) { return s.output(ctx, exec, stream, offset) })
	}
	if err != nil {
		return nil, e.c.explain(err)
	}
	return resp.Body, nil
}

// lost reports whether err means that the shim is dead, not merely slow.
func (c *Client) lost(err error) bool {
	if !errors.Is(err, errGone) {
		return false
	}
	alive, aerr := shimAlive(c.dir)
	return aerr == nil && !alive
}

// readSpool reads from the spool itself, as the spool of a dead sandbox.
func readSpool[T any](c *Client, read func(spoolReader) (T, error)) (T, error) {
	var zero T
	s, err := openSpool(c.cfg.Spec.SpoolDir, c.deadStatus().Cause)
	if err != nil {
		return zero, errdefs.Wrap(err, errdefs.Unavailable, "spool_unreadable", "open the spool of %s", c.cfg.Spec.Session)
	}
	return read(s)
}
