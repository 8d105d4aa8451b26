package egress

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/id"
)

// The addresses of every sandbox. They are the same in each, since each has a network namespace of its own; so a restored copy keeps
// its address.
var (
	GatewayAddr = netip.MustParseAddr("10.0.2.2")
	SandboxAddr = netip.MustParseAddr("10.0.2.15")
	Subnet      = netip.MustParsePrefix("10.0.2.0/24")
)

// Proto is a transport protocol.
type Proto string

// The protocols.
const (
	TCP  Proto = "tcp"
	UDP  Proto = "udp"
	ICMP Proto = "icmp"
)

// Flow is one attempt of a sandbox to reach something.
type Flow struct {
	Session id.Session
	Sandbox id.Sandbox
	Proto   Proto
	Src     netip.AddrPort // inside the sandbox
	Dst     netip.AddrPort // as the sandbox named it; port 0 for ICMP
	// Name is the name asked for, of a DNS question; "" for other flows.
	Name string
}

// Verdict is the answer to a Flow. The zero value refuses.
type Verdict struct {
	Allow  bool
	Reason string // for logs
}

// Decide judges a flow. It must not block for long: the flow waits for it.
type Decide func(ctx context.Context, f Flow) Verdict

// Refuse is the Decide that refuses everything.
func Refuse(context.Context, Flow) Verdict {
	return Verdict{Reason: "no policy allows it"}
}

// LogEvery is how long Logged stays silent after LogBurst lines.
const (
	LogEvery = time.Minute
	LogBurst = 20
)

// Logged wraps next so that what it refuses is logged, at most LogBurst lines per LogEvery: a sandbox must not be able to fill a log.
func Logged(next Decide, log *slog.Logger, c clock.Clock) Decide {
	l := &limiter{clock: c}
	return func(ctx context.Context, f Flow) Verdict {
		v := next(ctx, f)
		if v.Allow {
			return v
		}
		if ok, skipped := l.take(); ok {
			log.Info("flow refused", "proto", f.Proto, "dst", f.Dst, "name", f.Name, "reason", v.Reason, "unlogged_before", skipped)
		}
		return v
	}
}

type limiter struct {
	clock clock.Clock

	mu      sync.Mutex // guards all below
	start   time.Time
	count   int
	skipped int
}

// take reports whether a line may be written, and how many were left out before it.
func (l *limiter) take() (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if now.Sub(l.start) >= LogEvery {
		l.start, l.count = now, 0
	}
	if l.count >= LogBurst {
		l.skipped++
		return false, 0
	}
	l.count++
	n := l.skipped
	l.skipped = 0
	return true, n
}
