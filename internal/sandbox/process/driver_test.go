package process_test

import (
	"testing"

	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/process"
	"perdure.dev/perdure/internal/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, func(t testing.TB, bin sandboxtest.Binaries) sandbox.Driver {
		return process.New(process.Options{Engine: bin.Engine, Guest: bin.Guest})
	})
}
