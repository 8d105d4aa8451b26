package service

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

const (
	maxPorts       = 32              // of a session
	maxPortConns   = 128             // at a time to the ports of a session
	portRetry      = 5 * time.Second // for which a port of a workspace that has just woken may refuse
	portRetryPause = 50 * time.Millisecond
	portDialTime   = 10 * time.Second
	portRebind     = 5 * time.Second // after which an address that somebody else has is tried again
)

// forwards are the ports that the daemon listens on for sessions. They are the daemon's and not the sandboxes': whatever becomes of those,
// the address stays, and whoever connects wakes the session.
type forwards struct {
	mu   sync.Mutex // guards all below
	open map[uint16]*forward
}

// forward is one port that is listened on, or is to be.
type forward struct {
	live  *live
	port  event.Port
	conns chan struct{} // a slot for each connection to the session's ports
	stop  context.CancelFunc
	done  chan struct{}

	mu       sync.Mutex // guards all below
	listener net.Listener
	problem  error
}

func withoutPorts(spec event.Spec) event.Spec {
	spec.Ports = nil // the addresses are the parent's
	return spec
}

// ForwardPort has the daemon listen on a port for a session, until that is removed; local 0 chooses one.
func (s *Service) ForwardPort(ctx context.Context, ref string, req api.ForwardPort) (api.Port, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Port{}, err
	}
	l.configuring.Lock()
	defer l.configuring.Unlock()
	st := l.state()
	for _, p := range st.Spec.Ports {
		if p.Guest == req.Guest && (req.Local == 0 || p.Local == req.Local) {
			return s.presentPort(l.id, p), nil
		}
	}
	if len(st.Spec.Ports) >= maxPorts {
		return api.Port{}, errdefs.New(errdefs.Exhausted, "too_many_ports", "session %s has %d forwarded ports", st.Name, maxPorts).WithHint("perdure port rm %s PORT", st.Name)
	}
	listener, err := listenLocal(ctx, req.Local)
	if err != nil {
		return api.Port{}, errdefs.New(errdefs.Conflict, "port_in_use", "cannot listen on port %d of this machine: %v", req.Local, err).
			WithHint("choose another one, or none and let the daemon choose: perdure port %s %d", st.Name, req.Guest)
	}
	p := event.Port{Local: portOf(listener), Guest: req.Guest}
	if err := l.setPorts(ctx, append(slices.Clip(st.Spec.Ports), p)); err != nil {
		return api.Port{}, errors.Join(err, listener.Close())
	}
	s.forward(l, p, listener)
	return s.presentPort(l.id, p), nil
}

func portOf(l net.Listener) uint16 {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return uint16(a.Port)
	}
	return 0
}

func listenLocal(ctx context.Context, port uint16) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

// setPorts appends which ports a session has. The caller holds configuring.
func (l *live) setPorts(ctx context.Context, ports []event.Port) error {
	d := l.state().Spec.Configured()
	d.Ports = ports
	_, err := l.append(ctx, event.Draft{Type: event.SessionConfigured, Data: d})
	return err
}

// ListPorts lists the forwarded ports of a session. It wakes nothing.
func (s *Service) ListPorts(ctx context.Context, ref string) (api.List[api.Port], error) {
	row, err := s.cfg.Rows.Session(ctx, ref)
	if err != nil {
		return api.List[api.Port]{}, err
	}
	return list(row.Spec.Ports, func(p event.Port) api.Port { return s.presentPort(row.ID, p) }), nil
}

// RemovePort ends a forward and its connections.
func (s *Service) RemovePort(ctx context.Context, ref string, local uint16) error {
	l, err := s.live(ctx, ref)
	if err != nil {
		return err
	}
	l.configuring.Lock()
	defer l.configuring.Unlock()
	st := l.state()
	rest := slices.DeleteFunc(slices.Clone(st.Spec.Ports), func(p event.Port) bool { return p.Local == local })
	if len(rest) == len(st.Spec.Ports) {
		return errdefs.New(errdefs.NotFound, "port_not_found", "session %s has no forwarded port %d", st.Name, local).WithHint("perdure port ls %s", st.Name)
	}
	if err := l.setPorts(ctx, rest); err != nil {
		return err
	}
	s.unforward(l, func(p event.Port) bool { return p.Local == local })
	return nil
}

func (s *Service) presentPort(sid id.Session, p event.Port) api.Port {
	out := api.Port{SessionID: string(sid), Local: p.Local, Guest: p.Guest, Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.Local)))}
	s.forwards.mu.Lock()
	f := s.forwards.open[p.Local]
	s.forwards.mu.Unlock()
	if f == nil || f.live.id != sid {
		out.Problem = "the daemon does not listen on it: another session has it"
		return out
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != nil {
		out.Problem = f.problem.Error()
	}
	return out
}

// forward listens for a session. listener may be nil: then it is tried until the address is free.
func (s *Service) forward(l *live, p event.Port, listener net.Listener) {
	ctx, cancel := context.WithCancel(s.run)
	f := &forward{live: l, port: p, conns: l.portConns, stop: cancel, done: make(chan struct{}), listener: listener}
	s.forwards.mu.Lock()
	taken := s.forwards.open[p.Local] != nil
	if !taken {
		s.forwards.open[p.Local] = f
	}
	s.forwards.mu.Unlock()
	if taken || !s.goroutine(func(context.Context) { f.serve(ctx) }) {
		cancel()
		close(f.done)
		if listener != nil {
			listener.Close()
		}
	}
}

// unforward ends the forwards of a session that which names, with their connections.
func (s *Service) unforward(l *live, which func(event.Port) bool) {
	s.forwards.mu.Lock()
	var ended []*forward
	for local, f := range s.forwards.open {
		if f.live == l && which(f.port) {
			delete(s.forwards.open, local)
			ended = append(ended, f)
		}
	}
	s.forwards.mu.Unlock()
	for _, f := range ended {
		f.stop()
		<-f.done
	}
}

// listenAgain takes up the forwards of a session after a start.
func (s *Service) listenAgain(ctx context.Context, sid id.Session, ports []event.Port) {
	if len(ports) == 0 {
		return
	}
	l, err := s.liveByID(ctx, sid)
	if err != nil {
		s.cfg.Logger.Error("cannot listen on the ports of a session", "session", sid, "error", err)
		return
	}
	for _, p := range ports {
		listener, err := listenLocal(ctx, p.Local)
		if err != nil {
			listener = nil // somebody else has it: it is tried again until it is free
		}
		s.forward(l, p, listener)
	}
}

// serve accepts connections until ctx ends, and returns when they have.
func (f *forward) serve(ctx context.Context) {
	defer close(f.done)
	defer f.stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	svc := f.live.svc
	for ctx.Err() == nil {
		listener, err := f.bind(ctx)
		if err != nil {
			svc.cfg.Logger.Warn("cannot listen on a forwarded port; this is tried again", "session", f.live.id, "port", f.port.Local, "error", err)
			_ = svc.cfg.Clock.Sleep(ctx, portRebind) // ended early by ctx, which the loop sees
			continue
		}
		closed := context.AfterFunc(ctx, func() { listener.Close() })
		for {
			nc, err := listener.Accept()
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
					_ = svc.cfg.Clock.Sleep(ctx, portRetryPause) // out of file handles, most likely
					continue
				}
				break
			}
			conn := nc.(*net.TCPConn)
			select {
			case f.conns <- struct{}{}:
			default:
				refuse(conn)
				continue
			}
			conns.Go(func() {
				defer func() { <-f.conns }()
				f.connect(ctx, conn)
			})
		}
		closed()
		listener.Close()
	}
}

// bind returns the listener, made anew if there is none.
func (f *forward) bind(ctx context.Context) (net.Listener, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil {
		f.listener, f.problem = listenLocal(ctx, f.port.Local)
		if f.problem != nil {
			f.listener = nil
			return nil, f.problem
		}
	}
	l := f.listener
	f.listener = nil // the loop's from here on
	return l, nil
}

// refuse ends a connection so that its other end sees that nobody took it.
func refuse(c *net.TCPConn) {
	_ = c.SetLinger(0) // it is closed in any case
	c.Close()
}

// connect joins a connection with the port inside, waking the session. It is a use of the session until it ends.
func (f *forward) connect(ctx context.Context, conn *net.TCPConn) {
	defer f.live.use(idle.Port)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	inner, err := f.live.dialPort(ctx, f.port.Guest)
	if err != nil {
		if ctx.Err() == nil {
			f.live.svc.cfg.Logger.Info("a connection to a forwarded port is refused", "session", f.live.id, "port", f.port.Guest, "error", err)
		}
		refuse(conn)
		return
	}
	defer context.AfterFunc(ctx, func() { inner.Close() })()
	sandbox.Join(conn, inner)
}

// dialPort connects to a port in the workspace, waking it. What listens may not be back at once after that.
func (l *live) dialPort(ctx context.Context, port uint16) (sandbox.Conn, error) {
	woke := l.ready() == nil || l.state().Workspace.State != session.WorkspaceRunning
	for began := l.svc.cfg.Clock.Now(); ; {
		sb, err := l.running(ctx)
		if err != nil {
			return nil, err
		}
		dctx, cancel := context.WithTimeout(ctx, portDialTime)
		conn, err := sb.Dial(dctx, port)
		cancel()
		if err == nil {
			return conn, nil
		}
		moved := l.current() != sb // it was replaced under our hands, as by a rollback
		if !moved && (!woke || errdefs.CodeOf(err) != "port_refused") || l.svc.cfg.Clock.Now().Sub(began) > portRetry {
			return nil, err
		}
		if serr := l.svc.cfg.Clock.Sleep(ctx, portRetryPause); serr != nil {
			return nil, errors.Join(err, serr)
		}
	}
}
