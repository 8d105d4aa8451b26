package inside

import (
	"encoding/json"
	"sync"
	"time"

	"perdure.dev/perdure/internal/guest/wire"
)

// retain is how many bytes of a stream are kept for a host that has not acknowledged them. A full buffer holds up the writer.
const retain = 1 << 20

// batch is about how many bytes go out in one write.
const batch = 256 << 10

// outbox holds all that waits to be sent: control frames, and the retained output of every stream. Control frames go first;
// streams with something to send take turns.
type outbox struct {
	buffers sync.Pool // of *[]byte, pumpSize each

	mu      sync.Mutex // guards all below and the state of every stream
	wake    *sync.Cond // for the connection's writer
	live    *link      // whose writer may take things; nil: none
	later   bool       // something in dirty waits for laterTime
	control []byte
	dirty   []*stream
}

// stream is one output stream of a command.
type stream struct {
	cmd  *command
	id   wire.StreamID
	room *sync.Cond // on outbox.mu: acknowledged, so there is room

	data   []byte // from start on
	start  int64  // acknowledged
	sent   int64  // on the live connection
	eof    bool   // no more comes
	gone   bool   // the host has confirmed the end
	queued bool   // is in outbox.dirty
}

func (s *stream) produced() int64 { return s.start + int64(len(s.data)) }

func newOutbox() *outbox {
	o := &outbox{buffers: sync.Pool{New: func() any { b := make([]byte, pumpSize); return &b }}}
	o.wake = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) newStream(c *command, id wire.StreamID) *stream {
	return &stream{cmd: c, id: id, room: sync.NewCond(&o.mu)}
}

// write keeps and queues data. It waits while the buffer is full.
func (o *outbox) write(s *stream, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(s.data) >= retain {
		s.room.Wait()
	}
	s.data = append(s.data, data...)
	o.queue(s)
}

// laterTime is how long the end of a stream may rest, so that it travels with another frame, when the end of its command has been told
// and nobody waits for more.
const laterTime = 5 * time.Millisecond

func (o *outbox) finish(s *stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.eof = true
	if !s.cmd.exitSent || s.sent < s.produced() {
		o.queue(s)
		return
	}
	o.enter(s)
	if !o.later {
		o.later = true
		time.AfterFunc(laterTime, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.later = false
			o.wake.Signal()
		})
	}
}

// queue must be called with o.mu held.
func (o *outbox) queue(s *stream) {
	if o.enter(s) {
		o.wake.Signal()
	}
}

// enter puts a stream among those with something to send, unless it is there or nobody takes it. o.mu must be held.
func (o *outbox) enter(s *stream) bool {
	if s.queued || o.live == nil {
		return false
	}
	s.queued = true
	o.dirty = append(o.dirty, s)
	return true
}

// send queues a control frame for the live connection. Without one it is dropped: the sender repeats what matters.
func (o *outbox) send(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.live != nil {
		o.control = append(o.control, frame...)
		o.wake.Signal()
	}
}

// ack drops what the host has.
func (o *outbox) ack(s *stream, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(offset, s.produced()) - s.start
	if n <= 0 {
		return
	}
	s.start += n
	s.data = s.data[n:]
	if len(s.data) == 0 {
		s.data = nil
	}
	s.sent = max(s.sent, s.start)
	s.room.Broadcast()
}

// attach begins sending on a connection: every stream again from its first retained byte.
func (o *outbox) attach(l *link, commands []*command) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live, o.control, o.dirty = l, nil, nil
	for _, c := range commands {
		c.exitSent = false
		for _, s := range c.streams {
			s.sent, s.queued = s.start, false
			o.queue(s)
		}
	}
}

func (o *outbox) detach(l *link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.live == l {
		o.live, o.control, o.dirty = nil, nil, nil
	}
	o.wake.Broadcast()
}

// take waits for something to send on l and appends it to buf. It returns false when l is no longer live.
func (o *outbox) take(l *link, buf []byte) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.live == l && len(o.control) == 0 && len(o.dirty) == 0 {
		o.wake.Wait()
	}
	if o.live != l {
		return nil, false
	}
	buf = append(buf, o.control...)
	o.control = o.control[:0]
	for len(o.dirty) > 0 && len(buf) < batch {
		s := o.dirty[0]
		o.dirty = o.dirty[1:]
		s.queued = false
		buf = s.appendNext(buf)
		if s.sent < s.produced() {
			o.queue(s)
		}
	}
	return buf, true
}

// appendNext appends the stream's next piece, and behind its last one what follows from that: its end, its command's end.
func (s *stream) appendNext(buf []byte) []byte {
	if piece := s.data[s.sent-s.start:]; len(piece) > 0 {
		piece = piece[:min(len(piece), wire.MaxChunk)]
		buf = wire.AppendOutput(buf, wire.Output{Mark: s.mark(s.sent), Data: piece})
		s.sent += int64(len(piece))
	}
	buf = s.cmd.appendExit(buf)
	if s.eof && !s.gone && s.sent == s.produced() {
		buf = wire.AppendMark(buf, wire.TypeEOF, s.mark(s.sent))
	}
	return buf
}

func (s *stream) mark(at int64) wire.Mark {
	return wire.Mark{Exec: s.cmd.spec.ID, Stream: s.id, Offset: at}
}

// appendExit appends the command's end when all output from before it has been sent.
func (c *command) appendExit(buf []byte) []byte {
	if c.exit == nil || c.exitSent || c.exitAcked || c.streams[0].sent < c.exit.Stdout || c.streams[1].sent < c.exit.Stderr {
		return buf
	}
	c.exitSent = true
	data, err := json.Marshal(c.exit)
	if err != nil {
		return buf // cannot be: plain fields
	}
	return wire.AppendFrame(buf, wire.TypeExit, data)
}
