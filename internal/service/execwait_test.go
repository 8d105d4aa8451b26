package service_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// A client that waits for a command while the sandbox dies learns of it, however its call lies to the steps by which the loss is
// recorded: here it has asked the sandbox before the service lets go of it, and is answered afterwards.
func TestX3_WaitingClientLearnsThatTheSandboxDied(t *testing.T) {
	g := &gate{asked: make(chan struct{}), answer: make(chan struct{})}
	w := &world{}
	var exec string
	waited := make(chan api.Exec, 1)
	w.step = func(point string) {
		switch point {
		case "sandbox.lost": // the log has it, and the service has still the sandbox
			g.shut.Store(true)
			go func() {
				ctx, cancel := w.timed()
				defer cancel()
				x, err := w.svc.WaitExec(ctx, "s", id.Exec(exec))
				if err != nil {
					t.Errorf("wait: %v", err)
				}
				waited <- x
			}()
			<-g.asked
		case "sandbox.destroyed":
			g.open.Do(func() { close(g.answer) })
		}
	}
	w.wrap = func(d sandbox.Driver) sandbox.Driver { return gatedDriver{d, g} }
	w.begin(t)
	w.create("s", "process")
	exec = w.start("s", api.StartExec{Argv: []string{"sleep", "1000"}}).ID
	st, err := g.sandbox.Status(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range st.PIDs[1:] {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if x := <-waited; x.State != string(sandbox.ExecLost) || x.ExitCode != nil || x.Cause == "" {
		t.Errorf("the command: %+v", x)
	}
	w.state("s", "lost")
}

// gate holds back the answers of a sandbox about the ends of commands.
type gate struct {
	shut    atomic.Bool
	asked   chan struct{}
	answer  chan struct{}
	once    sync.Once
	open    sync.Once
	sandbox sandbox.Sandbox
}

type gatedDriver struct {
	sandbox.Driver
	g *gate
}

func (d gatedDriver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := d.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	d.g.sandbox = sb
	return gatedSandbox{sb, d.g}, nil
}

type gatedSandbox struct {
	sandbox.Sandbox
	g *gate
}

func (s gatedSandbox) Execs() sandbox.Execs { return gatedExecs{s.Sandbox.Execs(), s.g} }

type gatedExecs struct {
	sandbox.Execs
	g *gate
}

func (e gatedExecs) Wait(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	st, err := e.Execs.Wait(ctx, exec)
	if !e.g.shut.Load() {
		return st, err
	}
	e.g.once.Do(func() { close(e.g.asked) })
	select {
	case <-e.g.answer:
		return st, err
	case <-ctx.Done():
		return st, errors.Join(err, context.Cause(ctx))
	}
}
