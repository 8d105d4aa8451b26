package link

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"perdure.dev/perdure/internal/guest/wire"
)

var (
	errDropped = errors.New("connection dropped")
	errUnread  = errors.New("the guest does not read its answers")
)

// silence is how long a connection may be quiet before it counts as dead. The guest pings every few seconds.
const silence = 20 * time.Second

// laterTime is how long an answer that the guest does not wait for may rest, so that it travels with another frame. Each frame by itself
// wakes the guest, which costs more than the frame.
const laterTime = 5 * time.Millisecond

// restMost is how many bytes of such answers may rest together.
const restMost = 4 << 10

// ackAtOnce is how many bytes of output are acknowledged at once: a writer may wait for room.
const ackAtOnce = 32 << 10

// ackEvery is how many bytes of output may wait for an acknowledgement while more is coming in.
const ackEvery = 256 << 10

// conn is one connection from the guest.
type conn struct {
	link *Link
	nc   *net.UnixConn
	in   *bufio.Reader
	buf  []byte
	done chan struct{} // closed when the reader has ended

	// Of the reader alone:
	places  map[place]int64 // how far each stream is known to be in the spool, as this guest counts
	acks    map[place]int64 // to be sent
	unacked int             // bytes that they stand for
	stalled map[place]bool  // could not be stored: ignored until the next connection

	mu     sync.Mutex // guards all below
	wake   *sync.Cond
	out    []byte
	owed   int  // bytes of out that answer the guest, see answer
	later  bool // something in out waits for laterTime
	closed bool
}

// place names a stream of a command.
type place struct {
	exec   string
	stream wire.StreamID
}

func newConn(l *Link, nc *net.UnixConn) *conn {
	c := &conn{
		link: l, nc: nc, in: bufio.NewReaderSize(nc, 256<<10), done: make(chan struct{}),
		places: map[place]int64{}, acks: map[place]int64{}, stalled: map[place]bool{},
	}
	c.wake = sync.NewCond(&c.mu)
	return c
}

// closeOnDone closes c when the link ends. The returned function undoes that.
func closeOnDone(l *Link, c *conn) func() bool {
	return context.AfterFunc(l.ctx, func() { c.close(errDropped) })
}

func (c *conn) close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.nc.Close()
		c.wake.Signal()
		c.link.cfg.Log.Debug("closing a connection", "cause", cause)
	}
}

// send queues a frame. What a dead connection does not deliver is repeated or no longer wanted.
func (c *conn) send(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.out = append(c.out, frame...)
		c.wake.Signal()
	}
}

// answer is send for what the guest has caused. One that does not read its answers loses the connection.
func (c *conn) answer(frame []byte) {
	c.mu.Lock()
	c.owed += len(frame)
	over := c.owed > maxOwed
	c.mu.Unlock()
	if over {
		c.close(errUnread)
		return
	}
	c.send(frame)
}

// answerLater is answer for what the guest needs only to forget something.
func (c *conn) answerLater(frame []byte) {
	if !c.rest(frame) {
		c.answer(frame)
	}
}

// rest queues a frame that goes with the next one, or after laterTime. It reports false when much is queued already.
func (c *conn) rest(frame []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed+len(frame) > restMost {
		return false
	}
	if c.closed {
		return true
	}
	c.owed += len(frame)
	c.out = append(c.out, frame...)
	if !c.later {
		c.later = true
		time.AfterFunc(laterTime, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.later = false
			c.wake.Signal()
		})
	}
	return true
}

// write sends what is queued, many frames at a time.
func (c *conn) write() {
	var spare []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.closed {
			c.wake.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		batch := c.out
		c.out, c.owed = spare[:0], 0
		c.mu.Unlock()
		if _, err := c.nc.Write(batch); err != nil {
			c.close(err)
			return
		}
		spare = nil
		if cap(batch) <= 1<<20 {
			spare = batch
		}
	}
}

func (c *conn) readHello() (wire.Hello, error) {
	var h wire.Hello
	if err := c.nc.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return h, err
	}
	t, p, err := wire.ReadFrame(c.in, &c.buf)
	if err != nil {
		return h, err
	}
	if t != wire.TypeHello {
		return h, fmt.Errorf("%w: type %d before hello", wire.ErrFrame, t)
	}
	if err := json.Unmarshal(p, &h); err != nil {
		return h, err
	}
	if h.Version != wire.Version {
		reason := fmt.Sprintf("the guest speaks version %d of the link, this host %d", h.Version, wire.Version)
		w := encode(wire.Welcome{Version: wire.Version, Refused: reason})
		c.nc.Write(wire.AppendFrame(nil, wire.TypeWelcome, w)) // best effort: the connection ends in any case
		return h, errors.New(reason)
	}
	return h, checkHello(h)
}

// read handles frames until the connection ends.
func (c *conn) read() error {
	for {
		if err := c.nc.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		t, p, err := wire.ReadFrame(c.in, &c.buf)
		if err != nil {
			return err
		}
		if err := c.handle(t, p); err != nil {
			return err
		}
		if c.in.Buffered() == 0 || c.unacked >= ackEvery {
			c.flushAcks()
		}
	}
}

func (c *conn) handle(t wire.Type, p []byte) error {
	switch t {
	case wire.TypeOutput:
		return c.onOutput(p)
	case wire.TypeEOF:
		return c.onEOF(p)
	case wire.TypeExit:
		return c.onExit(p)
	case wire.TypeReply:
		r, err := wire.ParseReply(p)
		if err != nil {
			return err
		}
		return c.link.onReply(c, r)
	case wire.TypeEvent:
		var e wire.Event
		if err := json.Unmarshal(p, &e); err != nil {
			return err
		}
		c.link.onEvent(e)
	case wire.TypePing:
		c.answer(wire.AppendFrame(nil, wire.TypePong))
	case wire.TypePong:
	default:
		return fmt.Errorf("%w: type %d from a guest", wire.ErrFrame, t)
	}
	return nil
}

// encode is json.Marshal for types that cannot fail.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return data
}
