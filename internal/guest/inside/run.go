package inside

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// grace is how long an interpreter that is stuck in code of its own may take to follow an interrupt before it is killed.
const grace = 250 * time.Millisecond

// killing asks a run to end.
type killing struct {
	signal   unix.Signal
	timedOut bool
}

// run is one command in an interpreter.
type run struct {
	c         *command
	i         *interp
	interrupt chan killing
	opened    chan struct{} // closed when the interpreter has opened the input
	turn
	pumps []*pump
}

// kill is the command's kill: a waiting command leaves the queue, of a running one it reaches what the interpreter runs.
func (r *run) kill(sig unix.Signal) {
	if r.i.unqueue(r.c) {
		r.endWithoutRun(wire.Exit{Signal: signalName(sig), Cause: "it was ended before its turn came"})
		return
	}
	select {
	case <-r.c.done: // its children may live on
		killTree(r.c, sig)
	case r.interrupt <- killing{sig, false}:
	default: // so many signals at once: the last ones add nothing
	}
}

func (r *run) endWithoutRun(e wire.Exit) {
	for _, s := range r.c.streams {
		r.c.g.out.finish(s)
	}
	r.c.ended(e)
}

// execute runs the command from its turn to its end.
func (r *run) execute() {
	if err := r.begin(); err != nil {
		r.endWithoutRun(wire.Exit{Cause: fmt.Sprintf("the interpreter could not run it: %v", err), Signal: "SIGABRT"})
		return
	}
	exit := r.supervise()
	for _, p := range r.pumps {
		p.drain()
	}
	if exit.Cause == "" {
		exit.Cause = r.notice
	}
	r.i.rest()
	r.c.ended(exit)
	runtime.Gosched() // the end goes out first: on one processor the writer would wait for the cleaning up
	r.fifos.release()
	if err := r.i.stock(); err != nil {
		r.c.g.log.Warn("making the streams of a next command", "err", err) // the next command tries again
	}
}

// begin hands the command to the interpreter.
func (r *run) begin() error {
	g := r.c.g
	for attempt := 0; ; attempt++ {
		var err error
		if r.turn, err = r.i.prepare(r.c.spec.Code); err != nil {
			return err
		}
		if r.c.spec.Stdin {
			if err := r.fifos.input(); err != nil {
				r.fifos.abandon()
				return err
			}
		}
		g.mu.Lock()
		r.c.pid, r.c.startTick = r.proc.pid, bootTicks()
		g.mu.Unlock()
		if _, err := r.proc.control.Write(header(r.fifos.number, r.c.spec.ID, r.c.spec.Stdin, r.seed)); err != nil {
			r.fifos.abandon()
			if attempt < 3 { // it has ended between commands: the next one says so
				<-r.proc.exited
				continue
			}
			return err
		}
		return r.stream(r.fifos)
	}
}

func (r *run) stream(f *fifos) error {
	g := r.c.g
	for i, file := range f.out {
		p, err := g.startPump(file, r.c.streams[i])
		if err != nil {
			f.abandon()
			return err
		}
		r.pumps = append(r.pumps, p)
	}
	if f.in != nil {
		r.c.stdin.attach(f.in, r.opened, r.c.done)
	}
	return nil
}

// supervise waits for the interpreter's answer, a signal or the timeout.
func (r *run) supervise() wire.Exit {
	timeout, stop := r.c.timeout()
	defer stop()
	var deadline <-chan time.Time
	var killed killing
	end := func(k killing) {
		killed.timedOut = killed.timedOut || k.timedOut
		killed.signal = k.signal
		r.end(k.signal)
		if k.signal == unix.SIGKILL || k.signal == unix.SIGTERM || k.timedOut {
			deadline = time.After(grace)
		}
	}
	for {
		select {
		case a := <-r.proc.answers:
			if a.number != strconv.Itoa(r.fifos.number) {
				continue // of a command that was given up
			}
			if a.status == "opened" {
				close(r.opened)
				continue
			}
			r.i.remember(a.cwd)
			return r.exit(a.status, killed)
		case <-r.proc.exited:
			return r.interpreterEnded(killed)
		case k := <-r.interrupt:
			end(k)
		case <-timeout:
			timeout = nil
			end(killing{unix.SIGKILL, true})
		case <-deadline:
			unix.Kill(-r.proc.pid, unix.SIGKILL)
			unix.Kill(r.proc.pid, unix.SIGKILL)
			killTree(r.c, unix.SIGKILL)
			deadline = nil
		}
	}
}

// end sends a signal to what the interpreter runs. The interpreter itself gets an interrupt first, so that it does not go on with
// the next line of the script when its child is gone.
func (r *run) end(sig unix.Signal) {
	if sig == unix.SIGINT || sig == unix.SIGTERM || sig == unix.SIGKILL {
		unix.Kill(r.proc.pid, unix.SIGINT)
	}
	killTree(r.c, sig)
}

func (r *run) exit(status string, killed killing) wire.Exit {
	e := wire.Exit{TimedOut: killed.timedOut}
	code, err := strconv.Atoi(status)
	if err != nil {
		e.Cause = "the interpreter gave no status"
		return e
	}
	if killed.timedOut || killed.signal == unix.SIGKILL || killed.signal == unix.SIGTERM {
		e.Signal = signalName(killed.signal)
		return e
	}
	e.ExitCode = &code
	return e
}

// interpreterEnded is the end of a command that took its interpreter along: by exit, exec, or because it had to be killed.
func (r *run) interpreterEnded(killed killing) wire.Exit {
	// What it had answered before it ended still counts.
	for {
		select {
		case a := <-r.proc.answers:
			if a.number == strconv.Itoa(r.fifos.number) && a.status != "opened" {
				r.i.remember(a.cwd)
				return r.exit(a.status, killed)
			}
			continue
		default:
		}
		break
	}
	e := exitOf(r.proc.status)
	e.TimedOut = killed.timedOut
	e.Cause = fmt.Sprintf("the command ended its interpreter: %s; the next one starts it anew", describeEnd(r.proc.status))
	return e
}
