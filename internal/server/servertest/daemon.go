package servertest

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/internal/server"
)

// Daemon is a server on a Unix socket, which can be killed and started again around the same backend.
type Daemon struct {
	Backend *Backend
	Socket  string
	Config  server.Config

	mu     sync.Mutex // guards the fields below
	server *server.Server
	cancel context.CancelFunc
	lis    *cutListener
	done   chan struct{}
}

// NewDaemon starts a Daemon that ends with the test.
func NewDaemon(t testing.TB) *Daemon {
	t.Helper()
	root := t.TempDir()
	dir, err := os.MkdirTemp("", "pd") // a test's own directory may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	b := New(root)
	d := &Daemon{Backend: b, Socket: filepath.Join(dir, "perdure.sock")}
	d.Config = server.Config{Backend: b.Server(), Idempotency: NewKeys(), Log: slog.New(slog.DiscardHandler), Heartbeat: 20 * time.Millisecond}
	d.Start(t)
	t.Cleanup(func() {
		d.Kill()
		b.Close()
		os.RemoveAll(dir)
	})
	return d
}

// Start starts the server.
func (d *Daemon) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := server.New(ctx, d.Config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.ListenUnix(ctx, d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server, d.cancel, d.lis, d.done = s, cancel, &cutListener{Listener: l}, make(chan struct{})
	go func(l net.Listener, done chan struct{}) { // ends with Kill or Stop
		defer close(done)
		_ = s.Serve(l) // a test's own requests show what is wrong
	}(d.lis, d.done)
}

// Server is the running server.
func (d *Daemon) Server() *server.Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server
}

// Kill ends the server as SIGKILL would: every connection breaks at once.
func (d *Daemon) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		return
	}
	d.lis.Close()
	d.lis.Cut()
	d.cancel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.server.Shutdown(ctx) // cut at once
	<-d.done
	d.server = nil
}

// Stop ends the server gracefully.
func (d *Daemon) Stop(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	<-d.done
	d.cancel()
	d.server = nil
}

// Cut breaks every connection; the server goes on.
func (d *Daemon) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lis != nil {
		d.lis.Cut()
	}
}

// cutListener remembers its connections, to break them.
type cutListener struct {
	net.Listener
	mu    sync.Mutex // guards conns
	conns []*net.UnixConn
}

func (l *cutListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if u, ok := c.(*net.UnixConn); ok {
		l.mu.Lock()
		l.conns = append(l.conns, u)
		l.mu.Unlock()
	}
	return c, err
}

// Cut breaks the connections made so far.
func (l *cutListener) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}
