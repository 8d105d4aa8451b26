// Command perdure is Perdure's command line and daemon.
package main

import (
	"context"
	"os"

	"perdure.dev/perdure/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), serve))
}
