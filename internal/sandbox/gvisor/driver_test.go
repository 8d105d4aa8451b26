package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/gvisor"
	"perdure.dev/perdure/internal/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	cache := t.TempDir()
	sandboxtest.Run(t, func(t testing.TB, bin sandboxtest.Binaries) sandbox.Driver {
		return gvisor.New(gvisor.Options{Engine: bin.Engine, Guest: bin.Guest, Cache: cache})
	})
}

// Every sandbox that can be is made of a spare one here.
func TestConformanceWithSpares(t *testing.T) {
	cache := t.TempDir()
	// Of its own: tests of other packages build the binaries at the same time, and a spare of an engine that was built anew is not used.
	engine := filepath.Join(t.TempDir(), "perdure-engine")
	var once sync.Once
	sandboxtest.Run(t, func(t testing.TB, bin sandboxtest.Binaries) sandbox.Driver {
		once.Do(func() { copyFile(t, engine, bin.Engine) })
		return newEager(t, gvisor.Options{Engine: engine, Guest: bin.Guest, Cache: cache})
	})
}

func copyFile(t testing.TB, to, from string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

// eager has a spare ready before it starts or restores, and sees that it is used.
type eager struct {
	*gvisor.Driver
	t     testing.TB
	close func() // ends the spare with the test
}

func newEager(t testing.TB, opts gvisor.Options) eager {
	opts.Spare, opts.Log = true, slog.New(slog.NewTextHandler(t.Output(), nil)) // tells why one was not used
	d := gvisor.New(opts)
	// Asked for late, so that it is done before the test's directories go.
	return eager{d, t, sync.OnceFunc(func() {
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	})}
}

// use has start make a sandbox of a spare.
func (d eager) use(ctx context.Context, spec sandbox.Spec, start func() (sandbox.Sandbox, error)) (sandbox.Sandbox, error) {
	d.close()
	ready := d.AwaitSpare(ctx, spec)
	s, err := start()
	if err != nil || !ready {
		return s, err
	}
	if st, err := s.Status(ctx); err != nil {
		d.t.Errorf("status: %v", err)
	} else if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", st.PIDs[0])); err != nil || !bytes.Contains(args, []byte("--spare")) {
		d.t.Errorf("the shim is no former spare: %q, %v", args, err)
	}
	return s, nil
}

func (d eager) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return d.use(ctx, spec, func() (sandbox.Sandbox, error) { return d.Driver.Start(ctx, spec) })
}

func (d eager) Restore(ctx context.Context, spec sandbox.Spec, image sandbox.Image) (sandbox.Sandbox, error) {
	return d.use(ctx, spec, func() (sandbox.Sandbox, error) { return d.Driver.Restore(ctx, spec, image) })
}

func (d eager) Rollback(ctx context.Context, old sandbox.Sandbox, spec sandbox.Spec, image sandbox.Image) (sandbox.Sandbox, error) {
	return d.use(ctx, spec, func() (sandbox.Sandbox, error) { return d.Driver.Rollback(ctx, old, spec, image) })
}

func BenchmarkFigures(b *testing.B) {
	cache := b.TempDir()
	sandboxtest.Figures(b, func(t testing.TB, bin sandboxtest.Binaries) sandbox.Driver {
		return gvisor.New(gvisor.Options{Engine: bin.Engine, Guest: bin.Guest, Cache: cache})
	})
}
