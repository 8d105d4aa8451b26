// Package checkpoint holds the commands that take checkpoints and go to them.
package checkpoint

import (
	"github.com/spf13/cobra"

	"perdure.dev/perdure/internal/cli/env"
)

// Commands are the commands of this package.
func Commands(e *env.Env) []*cobra.Command {
	return []*cobra.Command{newCreate(e), newList(e), newFork(e), newRollback(e), newUndo(e), newVerify(e), newRecover(e)}
}
