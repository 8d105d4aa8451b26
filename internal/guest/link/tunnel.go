package link

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/sandbox"
)

// maxTunnels bounds the connections into a sandbox, and maxStrangers those that have not said their token.
const (
	maxTunnels   = 256
	maxStrangers = 32
	tokenTime    = 5 * time.Second
)

// tunnels are the connections into the sandbox.
type tunnels struct {
	listener  *net.UnixListener
	strangers chan struct{}

	mu      sync.Mutex // guards all below
	waiting map[[wire.TokenSize]byte]chan *net.UnixConn
	open    map[*tunnelConn]struct{}
}

func newTunnels(path string) (*tunnels, error) {
	listener, err := listen(path)
	if err != nil {
		return nil, err
	}
	return &tunnels{
		listener: listener, strangers: make(chan struct{}, maxStrangers),
		waiting: map[[wire.TokenSize]byte]chan *net.UnixConn{}, open: map[*tunnelConn]struct{}{},
	}, nil
}

// accept takes the guest's ends until the listener is closed.
func (l *Link) acceptTunnels() {
	defer l.work.Done()
	t := l.tunnels
	for {
		nc, err := t.listener.AcceptUnix()
		if err != nil {
			if l.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if l.cfg.Clock.Sleep(l.ctx, 50*time.Millisecond) != nil {
				return
			}
			continue
		}
		select {
		case t.strangers <- struct{}{}:
			l.work.Go(func() {
				defer func() { <-t.strangers }()
				t.meet(nc)
			})
		default:
			nc.Close()
		}
	}
}

// meet gives a connection to whoever waits for its token.
func (t *tunnels) meet(nc *net.UnixConn) {
	var token [wire.TokenSize]byte
	if nc.SetReadDeadline(time.Now().Add(tokenTime)) != nil {
		nc.Close()
		return
	}
	if _, err := io.ReadFull(nc, token[:]); err != nil || nc.SetReadDeadline(time.Time{}) != nil {
		nc.Close()
		return
	}
	t.mu.Lock()
	ch := t.waiting[token]
	delete(t.waiting, token)
	t.mu.Unlock()
	if ch == nil {
		nc.Close()
		return
	}
	ch <- nc // capacity 1, one for each token
}

// Dial connects to a port on the sandbox's loopback; see sandbox.Guest.
func (l *Link) Dial(ctx context.Context, port uint16) (sandbox.Conn, error) {
	t := l.tunnels
	var token [wire.TokenSize]byte
	rand.Read(token[:]) // never fails, by its documentation
	met := make(chan *net.UnixConn, 1)
	t.mu.Lock()
	if len(t.waiting)+len(t.open) >= maxTunnels {
		t.mu.Unlock()
		return nil, errdefs.New(errdefs.Exhausted, "too_many_connections", "there are %d connections into the sandbox", maxTunnels).
			WithHint("close some; a program that opens one for each request may keep them open")
	}
	t.waiting[token] = met
	t.mu.Unlock()
	giveUp := func() {
		t.mu.Lock()
		delete(t.waiting, token)
		t.mu.Unlock()
		select {
		case nc := <-met:
			nc.Close()
		default:
		}
	}
	if _, err := l.call(ctx, wire.MethodDial, wire.DialArgs{Port: port, Token: token[:]}, nil, nil); err != nil {
		giveUp()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTime)
	defer cancel()
	select {
	case nc := <-met:
		c := &tunnelConn{UnixConn: nc, of: t}
		t.mu.Lock()
		t.open[c] = struct{}{}
		t.mu.Unlock()
		return c, nil
	case <-ctx.Done():
		giveUp()
		return nil, errdefs.New(errdefs.Unavailable, "port_unreachable", "the guest has not connected port %d", port)
	case <-l.ctx.Done():
		giveUp()
		return nil, context.Cause(l.ctx)
	}
}

// DropTunnels closes every connection into the sandbox, because the caller knows that they are dead; see Drop.
func (l *Link) DropTunnels() { l.tunnels.drop() }

// drop closes every connection: their ends inside are gone.
func (t *tunnels) drop() {
	t.mu.Lock()
	open := t.open
	t.open = map[*tunnelConn]struct{}{}
	t.mu.Unlock()
	for c := range open {
		c.UnixConn.Close()
	}
}

// tunnelConn is a connection into the sandbox.
type tunnelConn struct {
	*net.UnixConn
	of *tunnels
}

// Close ends it in both directions.
func (c *tunnelConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.UnixConn.Close()
}
