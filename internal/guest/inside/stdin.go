package inside

import (
	"os"
	"sync"

	"perdure.dev/perdure/internal/guest/wire"
)

// stdinBuffer is how many bytes of input may wait for a command to read them.
const stdinBuffer = 1 << 20

// stdin feeds a command's standard input. Offsets make repeated bytes harmless.
type stdin struct {
	tty bool // the end of input is a control character

	mu     sync.Mutex // guards all below
	change *sync.Cond
	file   *os.File
	data   []byte
	next   int64 // offset of the byte after the last one taken
	eof    bool
	broken bool // nobody reads any more
}

// newStdin takes input from now on, for a file that comes later.
func newStdin(tty bool, done <-chan struct{}) *stdin {
	s := &stdin{tty: tty}
	s.change = sync.NewCond(&s.mu)
	go func() {
		<-done
		s.stop()
	}()
	return s
}

// attach starts feeding file, which it owns unless it is a terminal. opened, if not nil, closes when the reader has opened its
// end: before that the file must not be closed.
func (s *stdin) attach(file *os.File, opened, done <-chan struct{}) {
	s.mu.Lock()
	s.file = file
	s.mu.Unlock()
	go s.feed(file, opened, done)
}

// stop ends the feeding; what is left is for nobody.
func (s *stdin) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.change.Broadcast()
	if !s.tty && s.file != nil {
		s.file.Close()
	}
}

func (s *stdin) feed(file *os.File, opened, done <-chan struct{}) {
	for {
		s.mu.Lock()
		for len(s.data) == 0 && !s.eof && !s.broken {
			s.change.Wait()
		}
		if s.broken {
			s.mu.Unlock()
			return
		}
		piece := s.data
		s.mu.Unlock()
		if len(piece) == 0 {
			s.end(file, opened, done)
			return
		}
		n, err := file.Write(piece)
		s.mu.Lock()
		s.data = s.data[n:]
		if err != nil {
			s.broken = true
		}
		s.change.Broadcast()
		s.mu.Unlock()
	}
}

func (s *stdin) end(file *os.File, opened, done <-chan struct{}) {
	if s.tty {
		file.Write([]byte{4}) // ^D; a terminal that is gone needs none
		return
	}
	if opened != nil {
		select {
		case <-opened:
		case <-done:
		}
	}
	file.Close()
}

// put takes the bytes from offset that were not taken before, and returns the offset of the next one. It waits for room.
func (s *stdin) put(offset int64, data []byte, eof bool) (next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset > s.next {
		return s.next, fail("conflict", "stdin_gap", "input at offset %d, but only %d bytes came before", offset, s.next)
	}
	for {
		skip := min(s.next-offset, int64(len(data)))
		offset, data = offset+skip, data[skip:]
		if len(data) == 0 {
			break
		}
		if s.eof || s.broken {
			return s.next, fail("conflict", "stdin_closed", "the command reads no more input")
		}
		if room := stdinBuffer - len(s.data); room > 0 {
			n := min(room, len(data))
			s.data = append(s.data, data[:n]...)
			s.next += int64(n)
			s.change.Broadcast()
			continue
		}
		s.change.Wait()
	}
	if eof && offset == s.next {
		s.eof = true
		s.change.Broadcast()
	}
	return s.next, nil
}

func (g *Guest) execStdin(a wire.StdinArgs, data []byte) (wire.StdinResult, error) {
	c, err := g.find(a.Exec)
	if err != nil {
		return wire.StdinResult{}, err
	}
	g.mu.Lock()
	s := c.stdin
	g.mu.Unlock()
	if s == nil {
		return wire.StdinResult{}, fail("conflict", "stdin_closed", "command %s takes no input", a.Exec)
	}
	next, err := s.put(a.Offset, data, a.EOF)
	return wire.StdinResult{Next: next}, err
}
