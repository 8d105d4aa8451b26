package server

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"perdure.dev/perdure/internal/errdefs"
)

// maxSocketPath is the kernel's limit for a Unix socket's path (sun_path in unix(7), less the final NUL).
const maxSocketPath = 107

// ListenUnix listens on a Unix socket that its owner alone may use. A socket that a dead daemon left is replaced; a live one is an error
// (daemon_running). The caller holds the lock of the data directory, so nobody else does this at the same time.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	fresh := path + ".new"
	if len(fresh) > maxSocketPath {
		return nil, errdefs.New(errdefs.Invalid, "socket_path_too_long", "the socket path %s is longer than %d bytes", path, maxSocketPath-len(".new")).
			WithHint("Use a data directory with a shorter path.")
	}
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		c.Close()
		return nil, errdefs.New(errdefs.Conflict, "daemon_running", "a daemon already answers on %s", path).
			WithHint("Use that one, or stop it first.")
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "listen_failed", "removing an old socket")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "listen_failed", "listening on %s", path)
	}
	// The socket becomes visible under its name only with its mode set. The name is then not the listener's any more.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		l.Close()
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "listen_failed", "listening on %s", path)
	}
	info, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "listen_failed", "listening on %s", path)
	}
	return &unixListener{Listener: l, path: path, info: info}, nil
}

// unixListener removes its socket when it is closed, unless another daemon has replaced it.
type unixListener struct {
	net.Listener
	path string
	info os.FileInfo
}

// Addr is the socket's own path: the listener beneath knows only the name under which it was made.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.info) {
		os.Remove(l.path)
	}
	return l.Listener.Close()
}

// ListenTCP listens on a TCP address. Without a token it refuses (token_required): nobody could use it, or everybody.
func (s *Server) ListenTCP(ctx context.Context, addr string) (net.Listener, error) {
	if len(s.cfg.Tokens) == 0 {
		return nil, errdefs.New(errdefs.Invalid, "token_required", "listening on %s needs a token", addr).
			WithHint("Put a line “NAME ROLE TOKEN” into the file %s in the data directory (mode 0600), for example “me admin $(openssl rand -hex 32)”.", TokensFile)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &errdefs.Error{Kind: errdefs.Conflict, Code: "address_in_use", Message: "something else listens on " + addr, Hint: "Choose another --listen address.", Err: err}
	}
	return l, errdefs.Wrap(err, errdefs.Unavailable, "listen_failed", "listening on %s", addr)
}
