package inside

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pumpSize is how much is read at once, in bytes.
const pumpSize = 64 << 10

// pump moves what a command writes from a pipe, FIFO or terminal to a stream of the outbox.
type pump struct {
	file   *os.File
	raw    syscall.RawConn
	out    *outbox
	stream *stream

	mu sync.Mutex // held over a read and the write to the outbox that follows, so that bytes keep their order
}

// startPump begins to read file, which must be non-blocking, and owns it.
func (g *Guest) startPump(file *os.File, s *stream) (*pump, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &pump{file: file, raw: raw, out: g.out, stream: s}
	go p.run()
	return p, nil
}

func (p *pump) run() {
	defer p.out.finish(p.stream)
	defer p.file.Close()
	for {
		n, err := 0, error(nil)
		rawErr := p.raw.Read(func(fd uintptr) bool {
			n, err = p.take(fd, pumpSize)
			return err != unix.EAGAIN
		})
		if rawErr != nil || err != nil || n == 0 { // EIO from a terminal: the last writer has gone
			return
		}
	}
}

// take reads up to limit bytes, without waiting for them, and gives them to the outbox, where it may wait for room. A buffer is held
// only while there is something to read, so idle streams cost little.
func (p *pump) take(fd uintptr, limit int) (int, error) {
	b := p.out.buffers.Get().(*[]byte)
	defer p.out.buffers.Put(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		n, err := unix.Read(int(fd), (*b)[:min(limit, pumpSize)])
		if err == unix.EINTR {
			continue
		}
		if n > 0 {
			p.out.write(p.stream, (*b)[:n])
		}
		return n, err
	}
}

// drain returns when all that was in the pipe at the call is in the outbox. A writer that goes on writing does not prolong it. It reads
// by itself, for waking the pump would take longer. When the pump has come to its end it does nothing: all is taken.
func (p *pump) drain() {
	p.raw.Control(func(fd uintptr) {
		there := p.size(fd)
		for there > 0 {
			n, err := p.take(fd, there)
			if err != nil || n <= 0 {
				return
			}
			there -= n
		}
	})
}

// size returns how many bytes wait in the pipe. What the pump itself has read by then is in the outbox.
func (p *pump) size(fd uintptr) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	if err != nil {
		return 1 << 20
	}
	return n
}
