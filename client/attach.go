package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// AttachOptions say what to join to a command.
type AttachOptions struct {
	Stdin   io.Reader               // nil: no input is sent
	Stdout  io.Writer               // nil: discarded
	Stderr  io.Writer               // nil: discarded
	Resize  <-chan api.TerminalSize // nil: no terminal
	Signals <-chan string           // sent to the process group
	// Offsets to start at: output before them is not delivered.
	StdoutOffset, StderrOffset int64
	// Lost is called when the connection broke and is being made again. May be nil.
	Lost func(error)
}

const maxServerMessage = 1 << 20 // bytes

// Attach joins a running or finished command: it delivers output from the offsets on, sends input, and returns the command as it ended, after
// its last byte of output. It comes back after a broken connection. When it returns, a Read of Stdin may still be in progress.
func (c *Client) Attach(ctx context.Context, s, exec string, o AttachOptions) (api.Exec, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &attach{c: c, path: execPath(s, exec) + "/attach", o: o, stdout: o.StdoutOffset, stderr: o.StderrOffset, try: c.newRetry()}
	a.in = newInput()
	if o.Stdin != nil {
		go a.in.read(ctx, o.Stdin)
	}
	for {
		st, err := a.connect(ctx)
		if err == nil {
			return st, nil
		}
		var w *writeError
		if errors.As(err, &w) {
			return api.Exec{}, w.err
		}
		if o.Lost != nil && ctx.Err() == nil {
			o.Lost(err)
		}
		if err := a.try.again(ctx, err); err != nil {
			return api.Exec{}, err
		}
	}
}

// attach is one attachment, over any number of connections.
type attach struct {
	c              *Client
	path           string
	o              AttachOptions
	stdout, stderr int64 // the next byte to deliver
	in             *input
	size           *api.TerminalSize // the last one
	signal         string            // to be sent
	try            *retry
}

// writeError is a failure of the caller's own writer, for which a new connection is no help.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// connect works over one connection until the command has ended (nil) or the connection has.
func (a *attach) connect(ctx context.Context) (api.Exec, error) {
	q := url.Values{"stdout": {strconv.FormatInt(a.stdout, 10)}, "stderr": {strconv.FormatInt(a.stderr, 10)}}
	h := http.Header{}
	a.c.authorize(h)
	conn, res, err := websocket.Dial(ctx, a.c.url(a.path, q), &websocket.DialOptions{HTTPClient: a.c.http, HTTPHeader: h})
	if err != nil {
		if res != nil && res.StatusCode >= 400 {
			return api.Exec{}, problemOf(res)
		}
		return api.Exec{}, broken(err)
	}
	conn.SetReadLimit(maxServerMessage)
	a.try.ok()
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup // one at a time: the next connection has its own
	defer func() {
		cancel()
		conn.CloseNow()
		writer.Wait()
	}()
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return api.Exec{}, broken(err)
		}
		if kind == websocket.MessageBinary {
			err = a.deliver(data)
		} else {
			var m api.AttachMessage
			if err := json.Unmarshal(data, &m); err != nil {
				return api.Exec{}, errdefs.Wrap(err, errdefs.Internal, "bad_answer", "reading a message")
			}
			switch m.Type {
			case api.AttachHello:
				if m.Exec == nil {
					return api.Exec{}, errdefs.New(errdefs.Internal, "bad_answer", "the daemon's hello is empty")
				}
				a.in.start(m.Exec.StdinSize)
				writer.Go(func() { a.write(ctx, conn) })
			case api.AttachAck:
				a.in.ack(m.Offset, m.EOF)
			case api.AttachExit:
				if m.Exec == nil {
					return api.Exec{}, errdefs.New(errdefs.Internal, "bad_answer", "the daemon's exit is empty")
				}
				return *m.Exec, nil
			case api.AttachProblem:
				err = a.problem(m)
			}
		}
		if err != nil {
			return api.Exec{}, err
		}
	}
}

// problem handles a refusal. Refused input is dropped: the command has ended or has closed it.
func (a *attach) problem(m api.AttachMessage) error {
	if m.End && m.Problem != nil {
		return m.Problem.Err()
	}
	if m.Refused == "stdin" || m.Refused == api.AttachEOF {
		a.in.refuse()
	}
	return nil
}

// deliver passes output on, whatever part of it is new.
func (a *attach) deliver(data []byte) error {
	if len(data) < api.AttachHeader {
		return errdefs.New(errdefs.Internal, "bad_answer", "a message is too short")
	}
	at, w := &a.stdout, a.o.Stdout
	if data[0] == api.AttachStderr {
		at, w = &a.stderr, a.o.Stderr
	}
	offset := int64(binary.BigEndian.Uint64(data[1:]))
	body := data[api.AttachHeader:]
	if offset > *at {
		return broken(io.ErrUnexpectedEOF) // something is missing: ask again
	}
	skip := min(*at-offset, int64(len(body)))
	body = body[skip:]
	*at += int64(len(body))
	if w == nil || len(body) == 0 {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return &writeError{err}
	}
	return nil
}

// write sends input, sizes and signals over one connection.
func (a *attach) write(ctx context.Context, conn *websocket.Conn) {
	defer conn.CloseNow()
	if a.size != nil && a.control(ctx, conn, api.AttachMessage{Type: api.AttachResize, Rows: a.size.Rows, Cols: a.size.Cols}) != nil {
		return
	}
	sent := a.in.acked()
	for {
		if a.signal != "" {
			if a.control(ctx, conn, api.AttachMessage{Type: api.AttachSignal, Signal: strings.ToUpper(a.signal)}) != nil {
				return
			}
			a.signal = ""
		}
		piece, eof, more := a.in.next(sent)
		if len(piece) > 0 {
			msg := binary.BigEndian.AppendUint64(append(make([]byte, 0, api.AttachHeader+len(piece)), api.AttachStdin), uint64(sent))
			msg = append(msg, piece...)
			if conn.Write(ctx, websocket.MessageBinary, msg) != nil {
				return
			}
			sent += int64(len(piece))
			continue
		}
		if eof {
			if a.control(ctx, conn, api.AttachMessage{Type: api.AttachEOF, Offset: sent}) != nil {
				return
			}
			more = nil // no more input; sizes and signals go on
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		case size, ok := <-a.o.Resize:
			if !ok {
				a.o.Resize = nil
				continue
			}
			a.size = &size
			if a.control(ctx, conn, api.AttachMessage{Type: api.AttachResize, Rows: size.Rows, Cols: size.Cols}) != nil {
				return
			}
		case a.signal = <-a.o.Signals:
		}
	}
}

func (a *attach) control(ctx context.Context, conn *websocket.Conn, m api.AttachMessage) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return conn.Write(ctx, websocket.MessageText, body)
}
