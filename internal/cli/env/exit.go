package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// Exit ends the command line with a code and without a message.
type Exit struct{ Code int }

func (e *Exit) Error() string { return fmt.Sprintf("exit %d", e.Code) }

// Interrupted is the exit code after ^C, as shells have it.
const Interrupted = 130

// Usage is an error of the command line itself.
func Usage(format string, args ...any) *errdefs.Error {
	return errdefs.New(errdefs.Invalid, "usage", format, args...)
}

// Report prints an error and returns the exit code for it.
func (e *Env) Report(ctx context.Context, err error) int {
	var exit *Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	case errors.Is(context.Cause(ctx), ErrInterrupted):
		return Interrupted
	}
	if e.JSON {
		enc := json.NewEncoder(e.Err)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(api.NewProblem(err)) // stderr is gone if this fails
		return errdefs.KindOf(err).ExitCode()
	}
	fmt.Fprintf(e.Err, "perdure: %s (%s)\n", err, errdefs.CodeOf(err))
	if hint := errdefs.HintOf(err); hint != "" {
		fmt.Fprintf(e.Err, "  hint: %s\n", hint)
	}
	return errdefs.KindOf(err).ExitCode()
}
