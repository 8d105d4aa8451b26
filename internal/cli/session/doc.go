// Package session holds the commands that make, show, move and end sessions. Each verb is an Options with a Run, so that it can be tested
// without a command line.
package session

import (
	"github.com/spf13/cobra"

	"perdure.dev/perdure/internal/cli/env"
)

// Commands are the commands about sessions as such.
func Commands(e *env.Env) []*cobra.Command {
	return []*cobra.Command{newRun(e), newCreate(e), newList(e), newShow(e), newEvents(e), newSend(e), newCancel(e), newSet(e), newRemove(e), newWait(e)}
}

// Comparing are the commands that set one state beside another.
func Comparing(e *env.Env) []*cobra.Command {
	return []*cobra.Command{newTranscript(e), newTimeline(e), newDiff(e)}
}
