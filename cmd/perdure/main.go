// Command perdure is Perdure's command line and daemon.
package main

import (
	"context"
	"os"

	"perdure.dev/perdure/internal/cli"
	"perdure.dev/perdure/internal/layer"
)

func main() {
	ctx := context.Background()
	if layer.Helper(ctx) {
		return
	}
	os.Exit(cli.Main(ctx, serve))
}
