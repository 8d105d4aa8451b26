package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
)

type unixKey struct{}

// markUnix notes on a connection's context that it came through the Unix socket, whose mode is its authentication.
func markUnix(ctx context.Context, c net.Conn) context.Context {
	if _, ok := c.(*net.UnixConn); ok {
		return context.WithValue(ctx, unixKey{}, true)
	}
	return ctx
}

// guard is what every request passes before it is routed: who asks, and under which name.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		defer func() {
			v := recover()
			if v == http.ErrAbortHandler {
				panic(v) // net/http's own way to cut a connection
			}
			if v != nil {
				s.cfg.Log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
				writeProblem(w, errdefs.New(errdefs.Internal, "internal", "the daemon failed: %v", v).
					WithHint("This is a fault of Perdure's own; the daemon's log has the details."))
			}
			s.cfg.Log.Debug("request", "method", r.Method, "path", r.URL.Path, "took", time.Since(start))
		}()
		who, err := s.admit(r)
		if err != nil {
			if errdefs.CodeOf(err) == "unauthenticated" {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			writeProblem(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(actor.With(r.Context(), who)))
	})
}

// admit says for whom a request is made.
func (s *Server) admit(r *http.Request) (actor.Actor, error) {
	if r.Context().Value(unixKey{}) != nil {
		return actor.Local(), nil
	}
	if !s.hostAllowed(r.Host) {
		return actor.Actor{}, errdefs.New(errdefs.Denied, "host_denied", "the host %q is not one that this daemon answers to", r.Host).
			WithHint("Use an address or localhost, or start the daemon with --host-name for this name.")
	}
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok {
		if a, ok := authenticate(s.cfg.Tokens, strings.TrimSpace(secret)); ok {
			return a, nil
		}
	}
	return actor.Actor{}, errdefs.New(errdefs.Denied, "unauthenticated", "a valid token is needed").
		WithHint("Send Authorization: Bearer TOKEN, or use --token or PERDURE_TOKEN.")
}

// hostAllowed refuses DNS names that the server was not told of: with DNS rebinding, a web page reaches a local server under
// its own name. An address cannot be rebound.
func (s *Server) hostAllowed(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(s.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// permit refuses an actor whose role is too small.
func permit(ctx context.Context, need actor.Role) error {
	who := actor.From(ctx)
	if who.Role.Allows(need) {
		return nil
	}
	return errdefs.New(errdefs.Denied, "role_denied", "%s has the role %s, and this needs %s", orNobody(string(who.ID)), orNobody(string(who.Role)), need).
		WithHint("%s", fmt.Sprintf("Use a token with the role %s.", need))
}

func orNobody(s string) string {
	if s == "" {
		return "nobody"
	}
	return s
}
