package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// dial connects the caller with a port inside: after the answer 101 the connection is that stream.
func (s *server) dial(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		writeError(w, errdefs.New(errdefs.Invalid, "bad_request", "read the port"))
		return
	}
	inner, err := s.guest.Dial(r.Context(), uint16(port))
	if err != nil {
		writeError(w, err)
		return
	}
	defer inner.Close()
	nc, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, err)
		return
	}
	outer, ok := nc.(*net.UnixConn)
	if !ok {
		nc.Close()
		return
	}
	defer outer.Close()
	if outer.SetDeadline(time.Time{}) != nil {
		return
	}
	if _, err := io.WriteString(outer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"); err != nil {
		return
	}
	sandbox.Join(&bufferedConn{outer, buffered.Reader}, inner)
}

// bufferedConn is a connection of which some has been read.
type bufferedConn struct {
	*net.UnixConn
	in *bufio.Reader
}

// Read reads what has been read first.
func (c *bufferedConn) Read(p []byte) (int, error) {
	if c.in.Buffered() > 0 {
		return c.in.Read(p)
	}
	return c.UnixConn.Read(p)
}

// Dial implements sandbox.Sandbox. ctx bounds the connecting only.
func (c *Client) Dial(ctx context.Context, port uint16) (sandbox.Conn, error) {
	nc, err := dial(ctx, c.dir)
	if err != nil {
		return nil, c.explain(fmt.Errorf("%w: %w", errGone, err))
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	conn, err := upgrade(nc, port)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		nc.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.explain(err)
	}
	return conn, nil
}

func upgrade(nc net.Conn, port uint16) (sandbox.Conn, error) {
	query := url.Values{"port": {strconv.Itoa(int(port))}}
	if _, err := fmt.Fprintf(nc, "POST %s?%s HTTP/1.1\r\nHost: shim\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n", pathDial, query.Encode()); err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	in := bufio.NewReader(nc)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		var e wireError
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Kind == "" {
			return nil, errdefs.New(errdefs.Internal, codeProtocol, "the shim answered %s", resp.Status)
		}
		return nil, e.err()
	}
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the shim's socket is none")
	}
	return &bufferedConn{uc, in}, nil
}
