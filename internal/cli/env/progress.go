package env

import (
	"fmt"
	"time"
)

const (
	quiet   = 300 * time.Millisecond // work that is shorter shows nothing
	frames  = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
	tick    = 100 * time.Millisecond
	lineAll = 10 * time.Second // between lines where there is no terminal
)

// Progress shows that work is going on: a spinner on a terminal, a line now and then elsewhere, nothing with --json. what says it in a few
// words, such as "suspending invoices".
func Progress[T any](e *Env, what string, work func() (T, error)) (T, error) {
	return ProgressOf(e, func() string { return what }, work)
}

// ProgressOf is Progress for work that has more to say as it goes on. what is called at any time.
func ProgressOf[T any](e *Env, what func() string, work func() (T, error)) (T, error) {
	if e.JSON {
		return work()
	}
	done := make(chan struct{})
	shown := make(chan struct{})
	go func() { // ends with work
		defer close(shown)
		e.show(what, done)
	}()
	v, err := work()
	close(done)
	<-shown
	return v, err
}

func (e *Env) show(what func() string, done <-chan struct{}) {
	start := time.Now()
	first := time.NewTimer(quiet)
	defer first.Stop()
	select {
	case <-done:
		return
	case <-first.C:
	}
	if !e.Terminal.Err() {
		e.lines(what, start, done)
		return
	}
	t := time.NewTicker(tick)
	defer t.Stop()
	spin := []rune(frames)
	for i := 0; ; i++ {
		fmt.Fprintf(e.Err, "\r\x1b[K%c %s %.1f s", spin[i%len(spin)], what(), time.Since(start).Seconds())
		select {
		case <-done:
			fmt.Fprint(e.Err, "\r\x1b[K")
			return
		case <-t.C:
		}
	}
}

func (e *Env) lines(what func() string, start time.Time, done <-chan struct{}) {
	t := time.NewTicker(lineAll)
	defer t.Stop()
	e.Note("%s …", what())
	for {
		select {
		case <-done:
			return
		case <-t.C:
			e.Note("%s … %.0f s", what(), time.Since(start).Seconds())
		}
	}
}
