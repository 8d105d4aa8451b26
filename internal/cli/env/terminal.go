package env

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"perdure.dev/perdure/api"
)

// Terminal is the terminal that the command line runs in, if any.
type Terminal interface {
	// In, Out and Err report whether that stream is a terminal.
	In() bool
	Out() bool
	Err() bool
	// Size is the terminal's size, or 24 by 80 without one.
	Size() api.TerminalSize
	// Raw makes the input raw until restore is called.
	Raw() (restore func(), err error)
	// Resizes reports changes of the size until ctx ends.
	Resizes(ctx context.Context) <-chan api.TerminalSize
}

// SystemTerminal is the terminal of the process's own streams.
type SystemTerminal struct{}

func (SystemTerminal) In() bool  { return term.IsTerminal(int(os.Stdin.Fd())) }
func (SystemTerminal) Out() bool { return term.IsTerminal(int(os.Stdout.Fd())) }
func (SystemTerminal) Err() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

func (SystemTerminal) Size() api.TerminalSize {
	for _, f := range []*os.File{os.Stdout, os.Stdin, os.Stderr} {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return api.TerminalSize{Rows: uint16(h), Cols: uint16(w)}
		}
	}
	return api.TerminalSize{Rows: 24, Cols: 80}
}

func (SystemTerminal) Raw() (func(), error) {
	fd := int(os.Stdin.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(fd, old) }, nil // nothing to be done if it fails
}

func (t SystemTerminal) Resizes(ctx context.Context) <-chan api.TerminalSize {
	out := make(chan api.TerminalSize, 1)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	go func() { // ends with ctx
		defer signal.Stop(ch)
		for {
			select {
			case <-ctx.Done():
				return
			case <-ch:
				select {
				case out <- t.Size():
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out
}
