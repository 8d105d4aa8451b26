package link

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"sync"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Config says what a Link works with.
type Config struct {
	Socket string       // path to listen on; the guest sees its directory through a bind mount
	Spool  *spool.Spool // open; the Link is its only writer
	Log    *slog.Logger // nil: none
	Clock  clock.Clock  // nil: the machine's
	Env    []string     // KEY=VALUE, the base environment of every command
	Limits Limits
	User   string // whom commands run as; "": the guest's own
	Dir    string // where commands start; "": the user's home directory
}

// Limits are resource limits of every process inside. Zero leaves a limit as it is.
type Limits struct {
	Processes int // RLIMIT_NPROC; the kernel does not apply it to root
	OpenFiles int // RLIMIT_NOFILE
}

// Link is the host end of one guest.
type Link struct {
	cfg      Config
	hostID   string
	listener *net.UnixListener
	tunnels  *tunnels
	ctx      context.Context // of the Link's own goroutines
	cancel   context.CancelCauseFunc
	work     sync.WaitGroup
	greeting chan struct{} // holds one for each connection that has not said hello
	takeover sync.Mutex    // held while one connection replaces another

	mu       sync.Mutex // guards all below
	conn     *conn      // live, or nil
	changed  chan struct{}
	dead     error // sandbox_dead once the guest will not come back
	nextID   uint64
	pending  map[uint64]*call
	watches  map[uint64]*watch
	starting map[id.Exec]*call
}

// Open listens on the socket, replacing a stale one, and returns at once; see Connected. The end of ctx breaks the connection
// for good, but Close is still due. Errors: link_listen.
func Open(ctx context.Context, cfg Config) (*Link, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.System{}
	}
	listener, err := listen(cfg.Socket)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Unavailable, "link_listen", "listening for the guest on %s", cfg.Socket)
	}
	ports, err := newTunnels(cfg.Socket + wire.TunnelSuffix)
	if err != nil {
		return nil, errdefs.Wrap(errors.Join(err, listener.Close()), errdefs.Unavailable, "link_listen", "listening for the guest beside %s", cfg.Socket)
	}
	var host [16]byte
	rand.Read(host[:]) // never fails, by its documentation
	l := &Link{
		cfg: cfg, hostID: hex.EncodeToString(host[:]), listener: listener, tunnels: ports, greeting: make(chan struct{}, maxGreeting), changed: make(chan struct{}),
		pending: map[uint64]*call{}, watches: map[uint64]*watch{}, starting: map[id.Exec]*call{},
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.work.Add(2)
	go l.accept()
	go l.acceptTunnels()
	return l, nil
}

// Execs returns the commands of the sandbox.
func (l *Link) Execs() sandbox.Execs { return execs{l} }

// Files returns the files of the sandbox.
func (l *Link) Files() sandbox.Files { return files{l} }

// Connected waits until a guest is connected and its state is taken over. Errors: sandbox_dead, or ctx's cause.
func (l *Link) Connected(ctx context.Context) error {
	for {
		l.mu.Lock()
		live, dead, changed := l.conn != nil, l.dead, l.changed
		l.mu.Unlock()
		switch {
		case dead != nil:
			return dead
		case live:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Drop closes the connection, because the caller knows that it is dead, as after a checkpoint or restore. The next one
// that the guest dials takes over. It returns when nothing of the old connection can reach the spool any more.
func (l *Link) Drop() {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c != nil {
		c.close(errDropped)
		<-c.done
	}
}

// Dead says that the sandbox will not come back: running commands become lost with the cause, and whoever waits for the guest
// gets sandbox_dead. Reading from the spool goes on.
func (l *Link) Dead(cause string) {
	l.fail(errdefs.New(errdefs.Unavailable, "sandbox_dead", "the sandbox is dead: %s", cause))
	l.Drop()
	l.tunnels.drop()
	if _, err := l.cfg.Spool.MarkLost(cause); err != nil {
		l.cfg.Log.Error("marking commands as lost", "err", err)
	}
}

// Close ends the link and leaves the guest, its commands and the spool as they are. It returns when all is still.
func (l *Link) Close() error {
	l.fail(errdefs.New(errdefs.Unavailable, "link_closed", "the link to the sandbox was closed"))
	l.cancel(errDropped)
	err := errors.Join(l.listener.Close(), l.tunnels.listener.Close())
	l.Drop()
	l.tunnels.drop()
	l.work.Wait()
	return err
}

// fail ends all waiting for the guest; the first reason stays.
func (l *Link) fail(err error) {
	l.mu.Lock()
	if l.dead == nil {
		l.dead = err
	}
	calls := l.pending
	l.pending = map[uint64]*call{}
	for n, w := range l.watches {
		close(w.gone)
		delete(l.watches, n)
	}
	l.notifyLocked()
	l.mu.Unlock()
	for _, c := range calls {
		c.finish(l, wire.ReplyHead{}, nil, err)
	}
}

func (l *Link) notifyLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}
