package gvisor_test

import (
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

func BenchmarkFigures(b *testing.B) {
	cache := b.TempDir()
	sandboxtest.Figures(b, func(t testing.TB, bin sandboxtest.Binaries) sandbox.Driver {
		return gvisor.New(gvisor.Options{Engine: bin.Engine, Guest: bin.Guest, Cache: cache})
	})
}
