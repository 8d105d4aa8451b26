package inside

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// Config says how a guest runs.
type Config struct {
	Socket    string       // the host's socket, as seen from inside
	RunDir    string       // for FIFOs and scripts; made if missing, best on a tmpfs of the sandbox
	Home      string       // where commands start; made if missing
	Subreaper bool         // adopt orphans although not PID 1
	Hooks     string       // the directory of hooks; "": there are none
	Log       *slog.Logger // nil: none
}

// Guest is a running guest.
type Guest struct {
	cfg    Config
	id     string
	log    *slog.Logger
	out    *outbox
	reaper *reaper
	redial chan struct{} // capacity 1: dial now

	mu       sync.Mutex // guards all below
	hostID   string
	env      []string // the base environment, from Welcome
	user     string   // whom commands run as, from Welcome; "": the guest's own
	dir      string   // where commands start, from Welcome; "": the user's home directory
	limits   wire.Limits
	cage     *cage // what counts the commands' processes; nil: nothing does
	shared   bool  // /dev/shm is bounded
	execs    map[string]*command
	finished []string // ids of commands that the host knows to have ended, oldest first
	requests map[uint64]*request
	interps  map[string]*interp
	uploads  map[string]*upload
	watches  map[uint64]*watch
	link     *link // the live connection, or nil
	tunnels  map[*tunnel]struct{}
}

// Run runs a guest until ctx ends. It fails only if it cannot begin.
func Run(ctx context.Context, cfg Config) error {
	g, err := newGuest(cfg)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGUSR1, unix.SIGHUP, unix.SIGPIPE, unix.SIGINT)
	defer signal.Stop(signals)
	go g.reaper.run(ctx)
	go g.dial(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-signals:
			switch s {
			case unix.SIGCHLD:
				g.reaper.poke()
			case unix.SIGUSR1: // sent after a checkpoint or restore: the connection is dead and does not know it
				g.dropTunnels()
				g.dropLink()
			}
		}
	}
}

func newGuest(cfg Config) (*Guest, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Subreaper {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("becoming a subreaper: %w", err)
		}
	}
	// Interpreters of other users must get to what is theirs in it.
	if err := os.MkdirAll(cfg.RunDir, 0o711); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Home, 0o700); err != nil {
		return nil, err
	}
	var name [16]byte
	rand.Read(name[:]) // never fails, by its documentation
	g := &Guest{
		cfg: cfg, id: hex.EncodeToString(name[:]), log: cfg.Log, out: newOutbox(), redial: make(chan struct{}, 1),
		execs: map[string]*command{}, requests: map[uint64]*request{}, interps: map[string]*interp{},
		uploads: map[string]*upload{}, watches: map[uint64]*watch{},
		tunnels: map[*tunnel]struct{}{},
	}
	g.reaper = newReaper()
	return g, nil
}
