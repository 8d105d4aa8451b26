package inside

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// keepFinished is how many ended commands are remembered, for the case that one is started again by a host that lost its spool.
const keepFinished = 4096

// command is one command of any kind.
type command struct {
	g         *Guest
	spec      wire.ExecSpec
	ready     chan struct{} // closed when the start is decided
	startErr  error         // written before ready closes
	cause     string        // written before ready closes
	done      chan struct{} // closed when it has ended
	startTick uint64        // kernel clock at its start, to tell its processes from older ones
	kill      func(sig unix.Signal)
	run       *run // of an interpreted command; set before it is queued
	resize    func(wire.Size) error

	// Guarded by Guest.mu:
	pid       int
	startedAt time.Time
	stdin     *stdin

	// Guarded by outbox.mu:
	streams   [2]*stream
	note      string // for people: what befell its processes; goes into the exit's cause
	exit      *wire.Exit
	exitSent  bool // on the live connection
	exitAcked bool
}

// settled reports whether the host knows all that there is to know. Both locks must be held.
func (c *command) settled() bool {
	return c.exitAcked && c.streams[0].gone && c.streams[1].gone
}

// execStart starts a command, or finds the one that has the id.
func (g *Guest) execStart(spec wire.ExecSpec) (any, error) {
	if spec.ID == "" || len(spec.ID) > wire.MaxExecID {
		return nil, fail("invalid", "exec_invalid", "%q is no exec id", spec.ID)
	}
	g.mu.Lock()
	c := g.execs[spec.ID]
	if c == nil {
		c = &command{g: g, spec: spec, ready: make(chan struct{}), done: make(chan struct{}), startedAt: time.Now().UTC()}
		c.streams = [2]*stream{g.out.newStream(c, wire.Stdout), g.out.newStream(c, wire.Stderr)}
		c.startTick = bootTicks()
		g.execs[spec.ID] = c
		g.mu.Unlock()
		c.startErr = g.launch(c)
		if c.startErr != nil {
			g.mu.Lock()
			delete(g.execs, spec.ID) // nothing of it ever ran; the reply to the request tells
			g.mu.Unlock()
		}
		close(c.ready)
		runtime.Gosched() // an interpreter gets its command before the host gets the news
	} else {
		g.mu.Unlock()
		<-c.ready
	}
	if c.startErr != nil {
		return nil, c.startErr
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return wire.ExecStarted{PID: c.pid, StartedAt: c.startedAt, Cause: c.cause}, nil
}

func (g *Guest) launch(c *command) error {
	switch c.spec.Kind {
	case "process":
		return g.startProcess(c)
	case "shell", "python":
		return g.startInterpreted(c)
	}
	return fail("invalid", "exec_invalid", "there is no kind of command %q", c.spec.Kind)
}

// find returns a command that has started.
func (g *Guest) find(exec string) (*command, error) {
	g.mu.Lock()
	c := g.execs[exec]
	g.mu.Unlock()
	if c == nil {
		return nil, fail("not_found", "exec_not_found", "the sandbox does not know the command %q", exec)
	}
	<-c.ready
	if c.startErr != nil {
		return nil, c.startErr
	}
	return c, nil
}

// ended records the end of a command, once.
func (c *command) ended(e wire.Exit) {
	o := c.g.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.exit != nil {
		return
	}
	switch {
	case e.Cause == "":
		e.Cause = c.note
	case c.note != "":
		e.Cause = c.note + "; " + e.Cause
	}
	e.Exec, e.EndedAt = c.spec.ID, time.Now().UTC()
	e.Stdout, e.Stderr = c.streams[0].produced(), c.streams[1].produced()
	c.exit = &e
	o.queue(c.streams[0])
	close(c.done)
}

func (g *Guest) execSignal(a wire.SignalArgs) (any, error) {
	if a.Signal <= 0 || a.Signal > 64 {
		return nil, fail("invalid", "signal_invalid", "there is no signal %d", a.Signal)
	}
	c, err := g.find(a.Exec)
	if err != nil {
		return nil, err
	}
	c.kill(unix.Signal(a.Signal))
	return nil, nil
}

func (g *Guest) execResize(a wire.ResizeArgs) (any, error) {
	c, err := g.find(a.Exec)
	if err != nil {
		return nil, err
	}
	if c.resize == nil {
		return nil, fail("invalid", "no_terminal", "command %s has no terminal", a.Exec)
	}
	return nil, c.resize(a.Size)
}

// onMark takes an acknowledgement of bytes or of a stream's end.
func (g *Guest) onMark(t wire.Type, m wire.Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.execs[m.Exec]
	if c == nil {
		return
	}
	s := c.streams[m.Stream-1]
	if t == wire.TypeAck {
		g.out.ack(s, m.Offset)
		return
	}
	g.out.mu.Lock()
	s.gone = s.eof && m.Offset == s.produced()
	g.out.mu.Unlock()
	g.settle(c)
}

func (g *Guest) onExitAck(exec string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.execs[exec]
	if c == nil {
		return
	}
	g.out.mu.Lock()
	c.exitAcked = c.exit != nil
	g.out.mu.Unlock()
	g.settle(c)
}

// settle moves a command of which the host knows all to the list of those that may be forgotten. Guest.mu must be held.
func (g *Guest) settle(c *command) {
	g.out.mu.Lock()
	settled := c.settled()
	g.out.mu.Unlock()
	if !settled {
		return
	}
	g.finished = append(g.finished, c.spec.ID)
	if len(g.finished) > keepFinished {
		delete(g.execs, g.finished[0])
		g.finished = g.finished[1:]
	}
}
