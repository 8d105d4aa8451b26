package inside

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pumpSize is how much is read at once, in bytes.
const pumpSize = 64 << 10

// pump moves what a command writes from a pipe, FIFO or terminal to a stream of the outbox.
type pump struct {
	file    *os.File
	raw     syscall.RawConn
	out     *outbox
	stream  *stream
	drained chan struct{} // closed when all that was there at the call of drain has been taken
	once    sync.Once
}

// startPump begins to read file, which must be non-blocking, and owns it.
func (g *Guest) startPump(file *os.File, s *stream) (*pump, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &pump{file: file, raw: raw, out: g.out, stream: s, drained: make(chan struct{})}
	go p.run()
	return p, nil
}

func (p *pump) run() {
	defer p.out.finish(p.stream)
	defer p.markDrained()
	defer p.file.Close()
	for {
		_, err := p.read(true, pumpSize)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if p.file.SetReadDeadline(time.Time{}) != nil {
				return
			}
			err = p.takeRest()
			p.markDrained()
		}
		if err != nil {
			return
		}
	}
}

// read takes up to limit bytes. A buffer is held only while there is something to read, so idle streams cost little.
func (p *pump) read(wait bool, limit int) (int, error) {
	var n int
	var err error
	attempt := func(fd uintptr) bool {
		b := p.out.buffers.Get().(*[]byte)
		defer p.out.buffers.Put(b)
		for {
			if n, err = unix.Read(int(fd), (*b)[:min(limit, pumpSize)]); err != unix.EINTR {
				break
			}
		}
		if err == unix.EAGAIN {
			n = 0
			return false
		}
		if n > 0 {
			p.out.write(p.stream, (*b)[:n])
		}
		return true
	}
	if wait {
		if rawErr := p.raw.Read(attempt); rawErr != nil {
			return 0, rawErr
		}
	} else {
		again := false
		if rawErr := p.raw.Control(func(fd uintptr) { again = !attempt(fd) }); rawErr != nil {
			return 0, rawErr
		}
		if again {
			return 0, nil
		}
	}
	if err != nil { // EIO from a terminal: the last writer has gone
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// takeRest reads as much as is in the pipe now. A writer that goes on writing does not prolong it.
func (p *pump) takeRest() error {
	there := 1 << 20
	p.raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			there = n
		}
	})
	for there > 0 {
		n, err := p.read(false, there)
		if err != nil || n == 0 {
			return err
		}
		there -= n
	}
	return nil
}

func (p *pump) markDrained() { p.once.Do(func() { close(p.drained) }) }

// drain returns when all that was in the pipe at the call is in the outbox.
func (p *pump) drain() {
	p.file.SetReadDeadline(time.Unix(1, 0)) // fails when the pump has come to its end, and then all is taken
	<-p.drained
}
