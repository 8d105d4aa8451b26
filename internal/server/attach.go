package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

const (
	maxAttachMessage = 1 << 20 // bytes; a client sends smaller pieces
	outputPiece      = 32 << 10
	pingEvery        = 20 * time.Second
)

type attachInput struct {
	ExecRef
	Stdout int64 `query:"stdout" minimum:"0" doc:"Byte offset to start at."`
	Stderr int64 `query:"stderr" minimum:"0" doc:"Byte offset to start at."`
}

func (s *Server) attachRoutes() {
	handleStream(s, route{
		id: "attach-exec", method: http.MethodGet, path: "/sessions/{s}/execs/{exec}/attach", role: actor.Operator, waits: true,
		media:   octetStream,
		summary: "Work with a command over a WebSocket: output from byte offsets, input, terminal size, signals. See api.AttachMessage",
	}, s.attach)
}

// attach joins a client and a command. Leaving changes nothing for the command; coming back with the offsets reached loses
// and repeats nothing.
func (s *Server) attach(ctx context.Context, in *attachInput, x *exchange) error {
	exec, err := in.id()
	if err != nil {
		return err
	}
	b := s.cfg.Backend.Execs
	leave, err := b.AttachExec(ctx, in.Session, exec)
	if err != nil {
		return err
	}
	defer leave()
	st, err := b.GetExec(ctx, in.Session, exec)
	// An empty write finds out where input goes on; a command that takes none refuses it.
	if err == nil && st.State == api.ExecRunning && b.WriteStdin(ctx, in.Session, exec, 0, nil, false) == nil {
		st, err = b.GetExec(ctx, in.Session, exec)
	}
	if err != nil {
		return err
	}
	s.hijacked.Add(1)
	defer s.hijacked.Done()
	c, err := websocket.Accept(x.w, x.r, nil)
	if err != nil {
		return nil // Accept has answered
	}
	defer c.CloseNow()
	c.SetReadLimit(maxAttachMessage)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attachment{s: s, conn: c, ref: in.Session, exec: exec, cancel: cancel}
	if a.send(ctx, api.AttachMessage{Type: api.AttachHello, Exec: &st}) != nil {
		return nil
	}
	a.run(ctx, in.Stdout, in.Stderr)
	return nil
}

// attachment is one attached client.
type attachment struct {
	s      *Server
	conn   *websocket.Conn // allows one reader and many writers
	ref    string
	exec   id.Exec
	cancel context.CancelCauseFunc
}

// run works until the command's output is delivered whole, or the client or the server goes.
func (a *attachment) run(ctx context.Context, stdout, stderr int64) {
	go a.read(ctx) // ends with ctx or the connection
	go a.ping(ctx) // ends with ctx
	var pumps sync.WaitGroup
	pumps.Go(func() { a.pump(ctx, api.AttachStdout, "stdout", stdout) })
	pumps.Go(func() { a.pump(ctx, api.AttachStderr, "stderr", stderr) })
	pumps.Wait()
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), errStopping) {
			a.conn.Close(websocket.StatusGoingAway, "the daemon is stopping")
		}
		return
	}
	st, err := a.s.cfg.Backend.Execs.WaitExec(ctx, a.ref, a.exec)
	if err != nil {
		a.fail(ctx, err)
		return
	}
	if a.send(ctx, api.AttachMessage{Type: api.AttachExit, Exec: &st}) == nil {
		a.conn.Close(websocket.StatusNormalClosure, "")
	}
}

// pump sends one stream of output to its end.
func (a *attachment) pump(ctx context.Context, stream byte, name string, offset int64) {
	r := a.s.follow(ctx, a.ref, a.exec, name, offset)
	defer r.Close()
	buf := make([]byte, api.AttachHeader+outputPiece)
	for {
		n, err := r.Read(buf[api.AttachHeader:])
		if n > 0 {
			buf[0] = stream
			binary.BigEndian.PutUint64(buf[1:], uint64(offset))
			offset += int64(n)
			if werr := a.conn.Write(ctx, websocket.MessageBinary, buf[:api.AttachHeader+n]); werr != nil {
				a.cancel(werr)
				return
			}
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			a.fail(ctx, err)
			return
		}
	}
}

// read does what the client asks.
func (a *attachment) read(ctx context.Context) {
	for {
		kind, data, err := a.conn.Read(ctx)
		if err != nil {
			a.cancel(err)
			return
		}
		what := "stdin"
		if kind == websocket.MessageBinary {
			err = a.input(ctx, data)
		} else {
			what, err = a.control(ctx, data)
		}
		if err != nil && ctx.Err() == nil {
			// A refusal is told; it ends nothing, since the output is still of use.
			if a.send(ctx, api.AttachMessage{Type: api.AttachProblem, Problem: problem(err), Refused: what}) != nil {
				return
			}
		}
	}
}

func (a *attachment) input(ctx context.Context, data []byte) error {
	if len(data) < api.AttachHeader || data[0] != api.AttachStdin {
		return errdefs.New(errdefs.Invalid, "invalid_request", "a binary message is not input")
	}
	offset := int64(binary.BigEndian.Uint64(data[1:]))
	body := data[api.AttachHeader:]
	if err := a.s.cfg.Backend.Execs.WriteStdin(ctx, a.ref, a.exec, offset, body, false); err != nil {
		return err
	}
	return a.send(ctx, api.AttachMessage{Type: api.AttachAck, Offset: offset + int64(len(body))})
}

// control does what a text message asks, and returns its type.
func (a *attachment) control(ctx context.Context, data []byte) (string, error) {
	var m api.AttachMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return "", errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "reading a message")
	}
	b := a.s.cfg.Backend.Execs
	switch m.Type {
	case api.AttachEOF:
		if err := b.WriteStdin(ctx, a.ref, a.exec, m.Offset, nil, true); err != nil {
			return m.Type, err
		}
		return m.Type, a.send(ctx, api.AttachMessage{Type: api.AttachAck, Offset: m.Offset, EOF: true})
	case api.AttachResize:
		return m.Type, b.ResizeExec(ctx, a.ref, a.exec, api.TerminalSize{Rows: m.Rows, Cols: m.Cols})
	case api.AttachSignal:
		sig, err := parseSignal(m.Signal)
		if err != nil {
			return m.Type, err
		}
		return m.Type, b.SignalExec(ctx, a.ref, a.exec, sig)
	}
	return m.Type, errdefs.New(errdefs.Invalid, "invalid_request", "there is no message type %q", m.Type)
}

func (a *attachment) send(ctx context.Context, m api.AttachMessage) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := a.conn.Write(ctx, websocket.MessageText, body); err != nil {
		a.cancel(err)
		return err
	}
	return nil
}

// fail tells the client why the attachment ends.
func (a *attachment) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if a.send(ctx, api.AttachMessage{Type: api.AttachProblem, Problem: problem(err), End: true}) == nil {
		a.conn.Close(websocket.StatusNormalClosure, "")
	}
	a.cancel(err)
}

// ping finds out that a silent client has gone.
func (a *attachment) ping(ctx context.Context) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			pctx, cancel := context.WithTimeout(ctx, pingEvery)
			err := a.conn.Ping(pctx)
			cancel()
			if err != nil {
				a.cancel(err)
				return
			}
		}
	}
}
