package env

import (
	"errors"
	"sync"
)

// ErrInterrupted is the cause with which a context ends at ^C.
var ErrInterrupted = errors.New("interrupted")

// Interrupts passes ^C to the command that wants it instead of ending the program.
type Interrupts struct {
	mu sync.Mutex // guards to
	to chan<- struct{}
}

// Divert sends interrupts to a channel until the returned function is called. One that the channel does not take at once ends the program.
func (i *Interrupts) Divert(to chan<- struct{}) (restore func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.to = to
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.to = nil
	}
}

// Deliver reports whether somebody took the interrupt.
func (i *Interrupts) Deliver() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.to == nil {
		return false
	}
	select {
	case i.to <- struct{}{}:
		return true
	default:
		return false
	}
}
