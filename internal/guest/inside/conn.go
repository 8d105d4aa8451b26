package inside

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"perdure.dev/perdure/internal/guest/wire"
)

const (
	silence     = 20 * time.Second // without a frame the connection counts as dead
	pingEvery   = 5 * time.Second
	welcomeTime = 10 * time.Second
	backoffMin  = 2 * time.Millisecond
	backoffMax  = 500 * time.Millisecond
)

// link is one connection to the host.
type link struct {
	nc   net.Conn
	in   *bufio.Reader
	buf  []byte
	quit chan struct{} // closed with the connection
	once sync.Once
}

func (l *link) close() {
	l.once.Do(func() {
		l.nc.Close()
		close(l.quit)
	})
}

// dial keeps a connection to the host until ctx ends.
func (g *Guest) dial(ctx context.Context) {
	backoff := backoffMin
	for ctx.Err() == nil {
		welcomed, err := g.connect(ctx)
		g.log.Debug("no connection to the host", "err", err)
		if welcomed { // only hosts that are not there are left alone for longer
			backoff = backoffMin
		}
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
			backoff = min(2*backoff, backoffMax)
		case <-g.redial:
			backoff = backoffMin
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// dropLink closes the connection and has the next one dialled at once.
func (g *Guest) dropLink() {
	g.mu.Lock()
	l := g.link
	g.mu.Unlock()
	select {
	case g.redial <- struct{}{}:
	default:
	}
	if l != nil {
		l.close()
	}
}

// connect dials, says hello and serves the connection until it ends. It reports whether the host said welcome.
func (g *Guest) connect(ctx context.Context) (welcomed bool, err error) {
	d := net.Dialer{Timeout: welcomeTime}
	nc, err := d.DialContext(ctx, "unix", g.cfg.Socket)
	if err != nil {
		return false, err
	}
	l := &link{nc: nc, in: bufio.NewReaderSize(nc, 256<<10), quit: make(chan struct{})}
	defer l.close()
	defer context.AfterFunc(ctx, l.close)()
	g.mu.Lock()
	g.link = l // so that SIGUSR1 reaches a connection that hangs in the greeting
	g.mu.Unlock()
	if err := g.greet(l); err != nil {
		return false, err
	}
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		defer l.close()
		g.write(l)
	}()
	go g.ping(l)
	err = g.read(l)
	l.close()
	g.out.detach(l)
	<-writing
	return true, err
}

func (g *Guest) greet(l *link) error {
	if err := l.nc.SetDeadline(time.Now().Add(welcomeTime)); err != nil {
		return err
	}
	data, err := json.Marshal(g.hello())
	if err != nil {
		return err
	}
	if _, err := l.nc.Write(wire.AppendFrame(nil, wire.TypeHello, data)); err != nil {
		return err
	}
	t, p, err := wire.ReadFrame(l.in, &l.buf)
	if err != nil {
		return err
	}
	var w wire.Welcome
	if t != wire.TypeWelcome {
		return fmt.Errorf("%w: type %d instead of a welcome", wire.ErrFrame, t)
	}
	if err := json.Unmarshal(p, &w); err != nil {
		return err
	}
	if w.Refused != "" {
		return errors.New(w.Refused)
	}
	g.welcome(l, w)
	g.settleIn()
	return l.nc.SetDeadline(time.Time{})
}

func (g *Guest) hello() wire.Hello {
	h := wire.Hello{Version: wire.Version, Guest: g.id, PID: pid()}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out.mu.Lock()
	defer g.out.mu.Unlock()
	for _, c := range g.execs {
		if c.settled() {
			continue
		}
		spec := c.spec
		spec.Code, spec.Env = "", nil
		state := func(s *stream) wire.StreamState {
			return wire.StreamState{Start: s.start, Produced: s.produced(), EOF: s.eof}
		}
		h.Execs = append(h.Execs, wire.HelloExec{
			Spec: spec, PID: c.pid, StartedAt: c.startedAt, Exited: c.exit != nil,
			Stdout: state(c.streams[0]), Stderr: state(c.streams[1]),
		})
	}
	return h
}

// welcome takes over what the host said. Requests, uploads and watches of another host end are void: it has its own.
func (g *Guest) welcome(l *link, w wire.Welcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.env, g.limits, g.user, g.dir = w.Env, w.Limits, w.User, w.Dir
	if g.hostID != w.Host {
		g.hostID = w.Host
		clear(g.requests)
		for n, watch := range g.watches {
			watch.close()
			delete(g.watches, n)
		}
		for n, u := range g.uploads {
			go u.abort()
			delete(g.uploads, n)
		}
	}
	for n := range g.requests {
		if !slices.Contains(w.Pending, n) {
			delete(g.requests, n)
		}
	}
	commands := make([]*command, 0, len(g.execs))
	for _, c := range g.execs {
		commands = append(commands, c)
	}
	g.out.attach(l, commands)
}

func (g *Guest) write(l *link) {
	var buf []byte
	for {
		var ok bool
		if buf, ok = g.out.take(l, buf[:0]); !ok {
			return
		}
		if _, err := l.nc.Write(buf); err != nil {
			return
		}
	}
}

func (g *Guest) ping(l *link) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.out.send(wire.AppendFrame(nil, wire.TypePing))
		case <-l.quit:
			return
		}
	}
}

func (g *Guest) read(l *link) error {
	for {
		if err := l.nc.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		t, p, err := wire.ReadFrame(l.in, &l.buf)
		if err != nil {
			return err
		}
		if err := g.onFrame(t, p); err != nil {
			g.log.Warn("a bad frame from the host", "err", err)
			return err
		}
	}
}

func (g *Guest) onFrame(t wire.Type, p []byte) error {
	switch t {
	case wire.TypeRequest:
		r, err := wire.ParseRequest(p)
		if err != nil {
			return err
		}
		r.Head, r.Blob = slices.Clone(r.Head), slices.Clone(r.Blob) // p is reused
		g.onRequest(r)
	case wire.TypeForget:
		n, err := wire.ParseU64(p)
		if err != nil {
			return err
		}
		g.mu.Lock()
		delete(g.requests, n)
		g.mu.Unlock()
	case wire.TypeAck, wire.TypeEOF:
		m, err := wire.ParseMark(p)
		if err != nil {
			return err
		}
		g.onMark(t, m)
	case wire.TypeExitAck:
		g.onExitAck(string(p))
	case wire.TypePing:
		g.out.send(wire.AppendFrame(nil, wire.TypePong))
	case wire.TypePong:
	default:
		return fmt.Errorf("%w: type %d from a host", wire.ErrFrame, t)
	}
	return nil
}
