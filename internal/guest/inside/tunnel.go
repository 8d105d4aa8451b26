package inside

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"perdure.dev/perdure/internal/guest/wire"
)

// dialTime is how long the two ends of a tunnel may take to connect.
const dialTime = 5 * time.Second

// tunnel joins a connection to a port on the loopback with one to the host. The sockets' own buffers hold back who is too fast, and each has
// its own, so that no tunnel holds up another, or the link.
type tunnel struct {
	inner *net.TCPConn
	outer *net.UnixConn
}

func (t *tunnel) close() {
	t.inner.Close()
	t.outer.Close()
}

// tunnel connects a port with the host, and returns when both ends are there.
func (g *Guest) tunnel(a wire.DialArgs) (any, error) {
	if a.Port == 0 || len(a.Token) != wire.TokenSize {
		return nil, fail("invalid", "guest_request", "port %d, with a token of %d bytes", a.Port, len(a.Token))
	}
	inner, err := dialLoopback(a.Port)
	if err != nil {
		kind, code := "unavailable", "port_unreachable"
		if errors.Is(err, syscall.ECONNREFUSED) {
			code = "port_refused"
		}
		return nil, fail(kind, code, "port %d: %v", a.Port, err)
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.Dial("unix", g.cfg.Socket+wire.TunnelSuffix)
	if err != nil {
		inner.Close()
		return nil, err
	}
	t := &tunnel{inner: inner, outer: conn.(*net.UnixConn)}
	if _, err := conn.Write(a.Token); err != nil {
		t.close()
		return nil, err
	}
	g.mu.Lock()
	g.tunnels[t] = struct{}{}
	g.mu.Unlock()
	go g.join(t)
	return nil, nil
}

func dialLoopback(port uint16) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTime}
	var first error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// join carries bytes until both directions have ended.
func (g *Guest) join(t *tunnel) {
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(t.inner, t.outer); err != nil {
			t.close()
			return
		}
		t.inner.CloseWrite()
	})
	both.Go(func() {
		if _, err := io.Copy(t.outer, t.inner); err != nil {
			t.close()
			return
		}
		t.outer.CloseWrite()
	})
	both.Wait()
	t.close()
	g.mu.Lock()
	delete(g.tunnels, t)
	g.mu.Unlock()
}

// dropTunnels closes every tunnel: after a checkpoint or restore their ends on the host are gone, and blocked reads do not notice.
func (g *Guest) dropTunnels() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.tunnels {
		t.close()
	}
}
