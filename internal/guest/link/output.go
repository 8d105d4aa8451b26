package link

import (
	"encoding/json"
	"fmt"
	"time"

	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// stallTime is how long a stream that cannot be stored, because the disk is full, rests before it is tried again.
const stallTime = time.Second

func streamName(s wire.StreamID) sandbox.Stream {
	if s == wire.Stderr {
		return sandbox.Stderr
	}
	return sandbox.Stdout
}

// reconcile fits the spool to what a newly connected guest holds.
func (l *Link) reconcile(c *conn, hello wire.Hello) {
	known := map[id.Exec]bool{}
	for _, h := range hello.Execs {
		exec := id.Exec(h.Spec.ID)
		known[exec] = true
		if err := l.reconcileExec(c, h); err != nil {
			l.cfg.Log.Error("taking over a command", "exec", exec, "err", err)
		}
	}
	for _, r := range l.cfg.Spool.Records() {
		l.mu.Lock()
		_, starting := l.starting[r.ID()]
		l.mu.Unlock()
		if known[r.ID()] || starting { // a start in flight is repeated in a moment
			continue
		}
		if lost, err := r.Lose("the sandbox does not know it: it never started, or the timeline that it ran in was left"); err != nil {
			l.cfg.Log.Error("marking a command as lost", "exec", r.ID(), "err", err)
		} else if lost {
			l.cfg.Log.Warn("a command is lost", "exec", r.ID())
		}
	}
}

func (l *Link) reconcileExec(c *conn, h wire.HelloExec) error {
	r, made, err := l.cfg.Spool.Create(specFromWire(clipSpec(h.Spec)))
	if err != nil {
		return err
	}
	if st := r.Status(); made || st.State == sandbox.ExecRunning && st.PID == 0 {
		r.Started(h.PID, h.StartedAt, st.Cause)
	} else if !h.Exited && st.State != sandbox.ExecRunning {
		err = r.Revive(h.PID)
	}
	if err != nil {
		return err
	}
	for s, state := range map[wire.StreamID]wire.StreamState{wire.Stdout: h.Stdout, wire.Stderr: h.Stderr} {
		key := place{h.Spec.ID, s}
		c.places[key] = state.Start
		if err := r.Resume(streamName(s), state.Start, state.Produced); err != nil {
			c.stall(key, err)
		}
	}
	return nil
}

// onOutput stores a piece of a stream. The guest sends each stream in order within a connection.
func (c *conn) onOutput(p []byte) error {
	o, err := wire.ParseOutput(p)
	if err != nil {
		return err
	}
	key := place{o.Exec, o.Stream}
	if c.stalled[key] {
		return nil
	}
	if o.Offset != c.places[key] {
		return fmt.Errorf("%w: output at %d, expected at %d", wire.ErrFrame, o.Offset, c.places[key])
	}
	r, err := c.link.cfg.Spool.Get(id.Exec(o.Exec))
	if err != nil {
		c.link.cfg.Log.Warn("output of an unknown command", "exec", o.Exec)
		c.stalled[key] = true
		return nil
	}
	if err := r.Append(streamName(o.Stream), o.Offset, o.Data); err != nil {
		c.stall(key, err)
		return nil
	}
	c.places[key] += int64(len(o.Data))
	c.acks[key] = c.places[key]
	c.unacked += len(o.Data)
	return nil
}

// stall leaves a stream alone until the next connection, which comes soon. The guest keeps the bytes, and back-pressure
// holds up their writer and nobody else.
func (c *conn) stall(key place, err error) {
	c.link.cfg.Log.Error("storing output", "exec", key.exec, "err", err)
	if len(c.stalled) == 0 {
		c.link.work.Add(1)
		go func() {
			defer c.link.work.Done()
			if c.link.cfg.Clock.Sleep(c.link.ctx, stallTime) == nil {
				c.close(err)
			}
		}()
	}
	c.stalled[key] = true
}

func (c *conn) flushAcks() {
	answer := c.answerLater
	if c.unacked >= ackAtOnce {
		answer = c.answer
	}
	for key, offset := range c.acks {
		answer(wire.AppendMark(nil, wire.TypeAck, wire.Mark{Exec: key.exec, Stream: key.stream, Offset: offset}))
		delete(c.acks, key)
	}
	c.unacked = 0
}

func (c *conn) onEOF(p []byte) error {
	m, err := wire.ParseMark(p)
	if err != nil {
		return err
	}
	key := place{m.Exec, m.Stream}
	if r, err := c.link.cfg.Spool.Get(id.Exec(m.Exec)); err == nil && !c.stalled[key] && c.places[key] == m.Offset {
		r.CloseStream(streamName(m.Stream))
		delete(c.places, key)
		c.flushAcks()
		c.answerLater(wire.AppendMark(nil, wire.TypeEOF, m))
	}
	return nil
}

// onExit records an end, once all output up to it is stored.
func (c *conn) onExit(p []byte) error {
	var e wire.Exit
	if err := json.Unmarshal(p, &e); err != nil {
		return err
	}
	if c.stalled[place{e.Exec, wire.Stdout}] || c.stalled[place{e.Exec, wire.Stderr}] {
		return nil
	}
	if r, err := c.link.cfg.Spool.Get(id.Exec(e.Exec)); err == nil {
		end := spool.End{ExitCode: e.ExitCode, Signal: clip(e.Signal), Cause: clip(e.Cause), TimedOut: e.TimedOut, At: e.EndedAt}
		if err := r.Exit(end); err != nil {
			c.stall(place{e.Exec, wire.Stdout}, err)
			return nil
		}
	}
	c.flushAcks()
	c.answerLater(wire.AppendFrame(nil, wire.TypeExitAck, []byte(e.Exec)))
	return nil
}
