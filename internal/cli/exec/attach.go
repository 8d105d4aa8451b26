package exec

import (
	"context"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/errdefs"
)

// signalExit is the exit code for a signal's name, as shells have it.
func signalExit(name string) int {
	if n := unix.SignalNum(name); n != 0 {
		return 128 + int(n)
	}
	return errdefs.Internal.ExitCode()
}

// attach joins this program's streams to the command until it has ended.
func (o *options) attach(ctx context.Context, c *client.Client, session string, st api.Exec) (api.Exec, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := client.AttachOptions{Stdout: o.e.Out, Stderr: o.e.Err}
	if o.interactive {
		a.Stdin = o.e.In
	}
	raw := false
	if st.TTY && o.e.Terminal.In() {
		restore, err := o.e.Terminal.Raw()
		if err != nil {
			return st, errdefs.Wrap(err, errdefs.Internal, "terminal_failed", "making the terminal raw")
		}
		defer restore()
		raw = true
		a.Resize = o.sizes(ctx)
	}
	if !raw { // a raw terminal sends ^C as input
		signals := make(chan string, 1)
		a.Signals = signals
		defer o.passInterrupts(ctx, signals, cancel)()
	}
	return c.Attach(ctx, session, st.ID, a)
}

// sizes reports the terminal's size, first as it is now: a shell that is come back to had another.
func (o *options) sizes(ctx context.Context) <-chan api.TerminalSize {
	out := make(chan api.TerminalSize)
	changes := o.e.Terminal.Resizes(ctx)
	go func() { // ends with ctx
		size, ok := o.e.Terminal.Size(), true
		for ok {
			select {
			case out <- size:
			case <-ctx.Done():
				return
			}
			select {
			case size, ok = <-changes:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// passInterrupts sends the first ^C to the command; the second leaves it alone and ends this program.
func (o *options) passInterrupts(ctx context.Context, signals chan<- string, cancel context.CancelCauseFunc) (stop func()) {
	ints := make(chan struct{}, 1)
	restore := o.e.Interrupts.Divert(ints)
	go func() { // ends with ctx
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ints:
			}
			if n > 0 {
				o.e.Note("perdure: left; the command %s goes on", o.req.ID)
				cancel(errdefs.New(errdefs.Unavailable, "left", "left the command running").
					WithHint("Come back with: perdure exec S --id %s", o.req.ID))
				return
			}
			select {
			case signals <- "INT":
			case <-ctx.Done():
				return
			}
		}
	}()
	return restore
}
