package link

import (
	"context"
	"encoding/json"
	"sync"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/wire"
)

// call is a request that waits for its reply, over as many connections as it takes.
type call struct {
	frame   []byte
	onReply func(wire.ReplyHead, error) // runs before done closes, in the reader; nil: nothing
	once    sync.Once
	done    chan struct{}

	// Written before done closes:
	head wire.ReplyHead
	blob []byte
	err  error
}

func (p *call) finish(l *Link, head wire.ReplyHead, blob []byte, err error) {
	p.once.Do(func() {
		p.head, p.blob, p.err = head, blob, err
		if err == nil && head.Error != nil {
			p.err = errorFromWire(head.Error)
		}
		if p.onReply != nil {
			p.onReply(p.head, p.err)
		}
		close(p.done)
	})
}

// call sends a request and waits. When ctx ends first, the request may or may not have been carried out.
func (l *Link) call(ctx context.Context, method string, args any, blob []byte, result any) ([]byte, error) {
	n, p, err := l.begin(method, args, blob, nil)
	if err != nil {
		return nil, err
	}
	return l.wait(ctx, n, p, result)
}

// wait returns the reply, or gives the request up when ctx ends.
func (l *Link) wait(ctx context.Context, n uint64, p *call, result any) ([]byte, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.pending, n)
		l.mu.Unlock()
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		return nil, p.err
	}
	if result != nil {
		if err := json.Unmarshal(p.head.Result, result); err != nil {
			return nil, errdefs.Wrap(err, errdefs.Internal, "guest_reply", "understanding the guest")
		}
	}
	return p.blob, nil
}

// begin registers a request and sends it if there is a connection. register, if given, runs with the request's number
// under the lock, before anything is sent.
func (l *Link) begin(method string, args any, blob []byte, onReply func(wire.ReplyHead, error), register ...func(uint64, *call)) (uint64, *call, error) {
	head, err := json.Marshal(args)
	if err != nil {
		return 0, nil, errdefs.Wrap(err, errdefs.Internal, "guest_request", "encoding a request")
	}
	if len(head)+len(blob) > wire.MaxFrame/2 {
		return 0, nil, errdefs.New(errdefs.Invalid, "request_too_large", "a request of %d bytes is too large", len(head)+len(blob))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return 0, nil, l.dead
	}
	l.nextID++
	n := l.nextID
	p := &call{onReply: onReply, done: make(chan struct{})}
	p.frame = wire.AppendRequest(nil, wire.Request{ID: n, Method: method, Head: head, Blob: blob})
	l.pending[n] = p
	for _, f := range register {
		f(n, p)
	}
	if l.conn != nil {
		l.conn.send(p.frame)
	}
	return n, p, nil
}

// onReply ends a call. A reply that nobody waits for is forgotten all the same.
func (l *Link) onReply(c *conn, r wire.Reply) error {
	var head wire.ReplyHead
	if err := json.Unmarshal(r.Head, &head); err != nil {
		return err
	}
	l.mu.Lock()
	p := l.pending[r.ID]
	delete(l.pending, r.ID)
	l.mu.Unlock()
	forget := c.answerLater
	if len(r.Blob) >= ackAtOnce { // the guest keeps a reply until then
		forget = c.answer
	}
	forget(wire.AppendU64(nil, wire.TypeForget, r.ID))
	if p != nil {
		p.finish(l, head, append([]byte(nil), r.Blob...), nil)
	}
	return nil
}
