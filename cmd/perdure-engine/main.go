// Command perdure-engine runs one sandbox: it is the shim between the daemon and a sandbox, and the sandbox engine that the shim
// re-executes. People do not start it; perdure does.
package main

import (
	"context"
	"os"

	"perdure.dev/perdure/internal/sandbox/gvisor/engine"
)

func main() { os.Exit(engine.Main(context.Background(), os.Args)) }
