package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"perdure.dev/perdure/internal/guest/wire"
)

// maxSocketPath is what sun_path holds on Linux, without its NUL.
const maxSocketPath = 107

// helloTime is how long a new connection may take to say Hello.
const helloTime = 10 * time.Second

// listen binds the socket with mode 0600. A path that is too long for sun_path is reached through /proc/self/fd.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	bind := path
	if len(path) > maxSocketPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		bind = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: bind, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by Close time another link may own the path
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Link) accept() {
	defer l.work.Done()
	for {
		nc, err := l.listener.AcceptUnix()
		if err != nil {
			if l.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			l.cfg.Log.Warn("accepting the guest", "err", err)
			if l.cfg.Clock.Sleep(l.ctx, 50*time.Millisecond) != nil { // out of file handles, most likely
				return
			}
			continue
		}
		select {
		case l.greeting <- struct{}{}:
		default:
			l.cfg.Log.Warn("too many connections that do not say hello")
			nc.Close()
			continue
		}
		l.work.Add(1)
		go l.serve(newConn(l, nc))
	}
}

// serve runs one connection to its end.
func (l *Link) serve(c *conn) {
	defer l.work.Done()
	defer close(c.done)
	defer c.close(errDropped)
	stop := closeOnDone(l, c)
	defer stop()
	hello, err := c.readHello()
	<-l.greeting
	if err != nil {
		l.cfg.Log.Warn("a guest did not say hello", "err", err)
		return
	}
	if !l.adopt(c, hello) {
		return
	}
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		c.write()
	}()
	err = c.read()
	c.close(err)
	l.mu.Lock()
	if l.conn == c {
		l.conn = nil
		l.notifyLocked()
	}
	l.mu.Unlock()
	l.cfg.Log.Debug("the guest's connection ended", "err", err)
}

// adopt makes c the live connection: the old one ends first, then the spool is fitted to what the guest holds, then
// open requests go out again.
func (l *Link) adopt(c *conn, hello wire.Hello) bool {
	l.takeover.Lock()
	defer l.takeover.Unlock()
	l.Drop()
	l.reconcile(c, hello)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return false
	}
	w := wire.Welcome{Version: wire.Version, Host: l.hostID, Env: l.cfg.Env, Limits: wire.Limits(l.cfg.Limits), User: l.cfg.User, Dir: l.cfg.Dir}
	for n := range l.pending {
		w.Pending = append(w.Pending, n)
	}
	for n, watch := range l.watches {
		w.Pending = append(w.Pending, n)
		watch.missed()
	}
	c.send(wire.AppendFrame(nil, wire.TypeWelcome, encode(w)))
	for _, p := range l.pending {
		c.send(p.frame)
	}
	for n, watch := range l.watches {
		if _, first := l.pending[n]; !first {
			c.send(watch.frame)
		}
	}
	l.conn = c
	l.notifyLocked()
	return true
}
