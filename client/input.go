package client

import (
	"context"
	"io"
	"sync"
)

// input holds what was read from standard input until the daemon has acknowledged it.
type input struct {
	mu      sync.Mutex    // guards the fields below
	base    int64         // offset of held[0]; what comes before is acknowledged
	held    []byte        // bytes in it never change: what next has given away stays good
	started bool          // base is known
	eof     bool          // the reader has ended
	eofAck  bool          // … and the daemon knows
	dead    bool          // input is refused: drop it
	changed chan struct{} // closed and replaced at each change
}

const (
	inputPiece  = 256 << 10 // bytes read, and sent, at once: each piece is a round trip into the sandbox
	inputWindow = 1 << 20   // bytes held at most
)

func newInput() *input { return &input{changed: make(chan struct{})} }

func (in *input) notify() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// start learns from the first hello where this input begins in the command's.
func (in *input) start(size int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.started {
		in.base, in.started = size, true
		in.notify()
	}
}

func (in *input) acked() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.base
}

// next returns what to send from an offset on; if there is nothing, whether that is the end, and what to wait for.
func (in *input) next(from int64) (piece []byte, eof bool, more <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	rest := in.held[min(max(from-in.base, 0), int64(len(in.held))):]
	if in.dead {
		return nil, false, in.changed
	}
	if len(rest) > 0 {
		return rest[:min(len(rest), inputPiece)], false, nil
	}
	return nil, in.eof && !in.eofAck, in.changed
}

// ack forgets what the daemon has accepted.
func (in *input) ack(offset int64, eof bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := min(offset-in.base, int64(len(in.held))); n > 0 {
		in.held = in.held[n:] // no copy: append makes one when it has to
		in.base += n
	}
	in.eofAck = in.eofAck || eof
	in.notify()
}

// refuse drops all input, present and future.
func (in *input) refuse() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.dead, in.held = true, nil
	in.notify()
}

// read takes what r gives until its end. It holds at most inputWindow unacknowledged bytes.
func (in *input) read(ctx context.Context, r io.Reader) {
	buf := make([]byte, inputPiece)
	for in.room(ctx) {
		n, err := r.Read(buf)
		in.mu.Lock()
		if !in.dead {
			in.held = append(in.held, buf[:n]...)
		}
		in.eof = err != nil
		in.notify()
		in.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// room waits until more may be read.
func (in *input) room(ctx context.Context) bool {
	for {
		in.mu.Lock()
		full, changed := len(in.held) >= inputWindow, in.changed
		in.mu.Unlock()
		if !full {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
