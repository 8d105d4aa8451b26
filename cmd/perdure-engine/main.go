// Command perdure-engine runs one sandbox: it is the shim between the daemon and a sandbox, and the sandbox engine that the shim
// re-executes. People do not start it; perdure does.
package main

import (
	"context"
	"fmt"
	"os"

	"perdure.dev/perdure/internal/sandbox/gvisor/engine"
)

func main() {
	if cgo {
		// It re-executes itself inside an empty root, where a dynamic loader would not be found.
		fmt.Fprintln(os.Stderr, "perdure-engine: this build is dynamically linked; build it with CGO_ENABLED=0 (make build)")
		os.Exit(1)
	}
	os.Exit(engine.Main(context.Background(), os.Args))
}
