package agent

import (
	"fmt"
	"strings"

	"perdure.dev/perdure/internal/image"
)

// systemPrompt is short, and the same from step to step unless something changed, so that providers can cache it.
func (r *run) systemPrompt() string {
	var b strings.Builder
	b.WriteString("You are an agent that works on its own computer (the workspace) until the user's goal is reached. ")
	b.WriteString("The workspace persists: files, running processes, shell state and Python variables stay between your calls and between turns, for days. ")
	b.WriteString("Use the tools to act; do not ask the user to run things. Check your results before you say that something is done. ")
	b.WriteString("When the goal is reached, call finish with the result. An answer without tool calls ends your turn and hands over to the user.\n")
	b.WriteString("A tool result may say that a call was interrupted or that its outcome is unknown, since work can be suspended and resumed at any time: " +
		"then look at the actual state before you repeat anything.\n")
	home := "~, where commands and relative paths start"
	if image.IsStored(r.spec.Image) {
		home = "~; commands and relative paths start in ., the image's working directory"
	}
	fmt.Fprintf(&b, "\n# Environment\nsession: %s\nworkspace image: %s\nhome directory: %s\n", r.name, orElse(r.spec.Image, "host"), orElse(r.opt.Home, home))
	for _, m := range r.hist.missing {
		fmt.Fprintf(&b, "not available here: %s\n", m)
	}
	if r.hist.goal != "" {
		fmt.Fprintf(&b, "\n# Goal\n%s\n", r.hist.goal)
	}
	if r.spec.Instructions != "" {
		fmt.Fprintf(&b, "\n# Instructions\n%s\n", r.spec.Instructions)
	}
	if r.hist.trimmed {
		b.WriteString("\nThe oldest part of this conversation does not fit any more and is left out. The workspace still holds its results.\n")
	}
	return b.String()
}
