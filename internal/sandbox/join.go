package sandbox

import (
	"io"
	"sync"
)

// Join carries bytes between two connections until both directions have ended, or one has broken, and closes both. The end of one
// direction is passed on by itself.
func Join(a, b Conn) {
	broken := func() { a.Close(); b.Close() }
	var both sync.WaitGroup
	one := func(to, from Conn) {
		if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
			broken()
		}
	}
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
	broken()
}
