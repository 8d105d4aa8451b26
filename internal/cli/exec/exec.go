// Package exec holds the commands that run something in a workspace: exec, shell and python.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// Commands are the commands of this package.
func Commands(e *env.Env) []*cobra.Command {
	return []*cobra.Command{newExec(e), newShell(e), newPython(e), newProcesses(e), newKill(e)}
}

// options are those of a command to run.
type options struct {
	e           *env.Env
	interactive bool
	tty         bool
	background  bool
	shell       bool // whichever there is
	timeout     time.Duration
	req         api.StartExec
}

func newExec(e *env.Env) *cobra.Command {
	o := &options{e: e}
	cmd := &cobra.Command{
		Use: "exec S [flags] -- CMD...", Short: "Run a command in a workspace; its exit code is this one's", Args: cobra.MinimumNArgs(1),
		Long: "Run a command in a workspace. The exit code is the command's; 127 if there is no such command, 126 if it is not executable, 128+N if signal N ended it, 6 after --timeout, 7 if it was lost.\n" +
			"^C is passed on to the command; a second one leaves it running. With the --id of a command that exists, its output is shown again from the\n" +
			"start and it is not run again; CMD may then be left out.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.req.Argv = args[1:]
			return o.run(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.interactive, "interactive", "i", false, "pass standard input on")
	f.BoolVarP(&o.tty, "tty", "t", false, "run in a terminal")
	o.common(cmd)
	return cmd
}

// common adds the flags that exec and python share.
func (o *options) common(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.req.ID, "id", "", "the command's id; a repeat with the same id runs nothing again")
	f.DurationVar(&o.timeout, "timeout", 0, "kill the command and all that it started after this time")
	f.BoolVarP(&o.background, "detach", "d", false, "return at once; the command goes on")
	f.StringVar(&o.req.Label, "label", "", "shown in lists")
	if o.req.Kind == "" {
		f.StringArrayVarP(&o.req.Env, "env", "e", nil, "KEY=VALUE; KEY alone takes it from here")
		f.StringVar(&o.req.Dir, "dir", "", "the working directory")
		f.StringVarP(&o.req.User, "user", "u", "", "whom it runs as: NAME or UID, and perhaps :GROUP")
	}
}

func newPython(e *env.Env) *cobra.Command {
	o := &options{e: e, req: api.StartExec{Kind: "python"}}
	cmd := &cobra.Command{
		Use: "python S CODE", Short: "Run code in a workspace's persistent Python interpreter", Args: cobra.ExactArgs(2),
		Long: "Run code in a workspace's persistent Python interpreter, whose variables stay. CODE - reads it from standard input.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.req.Code = args[1]
			if args[1] == "-" {
				code, err := io.ReadAll(e.In)
				if err != nil {
					return env.Usage("reading the code: %v", err)
				}
				o.req.Code = string(code)
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVar(&o.req.Interpreter, "interpreter", "", "which of several; main is the agent's")
	o.common(cmd)
	return cmd
}

func newShell(e *env.Env) *cobra.Command {
	o := &options{e: e, interactive: true, req: api.StartExec{Label: "shell"}}
	cmd := &cobra.Command{
		Use: "shell S", Short: "Open a shell in a workspace", Args: cobra.ExactArgs(1),
		Long: "Open a shell in a workspace: in a terminal if this is one, else bash reads standard input. Where there is no bash, sh does. If the connection breaks, it comes back.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.tty = e.Terminal.In() && e.Terminal.Out()
			o.shell = o.req.ID == ""
			o.req.Argv = []string{"bash"}
			if o.tty {
				o.req.Argv = []string{"bash", "-i"}
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVar(&o.req.ID, "id", "", "the shell's id: come back to it with the same one")
	cmd.Flags().StringVar(&o.req.Dir, "dir", "", "the working directory")
	cmd.Flags().StringVarP(&o.req.User, "user", "u", "", "whom it runs as: NAME or UID, and perhaps :GROUP")
	return cmd
}

// run starts the command, or finds the one that has the id, and stays with it.
func (o *options) run(ctx context.Context, session string) error {
	if err := o.complete(); err != nil {
		return err
	}
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	var st api.Exec
	if len(o.req.Argv) == 0 && o.req.Code == "" {
		st, err = c.Exec(ctx, session, o.req.ID)
	} else {
		st, err = c.StartExec(ctx, session, o.req)
	}
	if errdefs.CodeOf(err) == "exec_not_found" {
		return errdefs.New(errdefs.NotFound, "exec_not_found", "%s has no command with the id %q", session, o.req.ID).
			WithHint("List them with: perdure ps %s --execs", session)
	}
	if o.shell && errdefs.CodeOf(err) == "command_not_found" && o.req.Argv[0] == "bash" { // as in a small image
		o.req.Argv[0], o.req.ID = "sh", string(id.NewExec())
		st, err = c.StartExec(ctx, session, o.req)
	}
	if code := unrunnable(err); code != 0 {
		return o.missing(ctx, c, session, code, err)
	}
	if err != nil {
		return err
	}
	if given := len(o.req.Argv) > 0 || o.req.Code != ""; given && (!slices.Equal(st.Argv, o.req.Argv) || st.Code != o.req.Code) {
		o.e.Note("perdure: %s is the id of another command, which is shown; nothing new runs", o.req.ID)
	}
	if o.background {
		return o.e.Print(st, func(w io.Writer) { fmt.Fprintln(w, st.ID) })
	}
	if o.e.JSON {
		return o.collect(ctx, c, session)
	}
	if st.State == api.ExecRunning && st.Cause != "" { // why it does not run yet, or not as it was left
		cause := env.Plain(st.Cause)
		told := time.AfterFunc(tellAfter, func() { o.e.Note("perdure: %s", cause) })
		defer told.Stop()
	}
	begun := st.Cause
	st, err = o.attach(ctx, c, session, st)
	var typed *errdefs.Error
	if errors.As(err, &typed) && (typed.Code == "daemon_unreachable" || typed.Code == "daemon_not_started") {
		return typed.WithHint("The command goes on. Come back to it with: perdure exec %s --id %s", session, o.req.ID)
	}
	if err != nil {
		return err
	}
	if st.Cause != begun && st.State != api.ExecLost { // which exit tells
		o.e.Note("perdure: %s", env.Plain(st.Cause))
	}
	return exit(st)
}

// unrunnable is the exit code that shells give for a command that cannot be run, or 0 if the error says something else.
func unrunnable(err error) int {
	switch errdefs.CodeOf(err) {
	case "command_not_found":
		return 127
	case "command_not_executable":
		return 126
	}
	return 0
}

// tellAfter is how long a command may wait for another one without a word.
const tellAfter = 300 * time.Millisecond

// missing tells of a command that cannot be run as a shell does. With --json it is a finished command like any other.
func (o *options) missing(ctx context.Context, c *client.Client, session string, code int, cause error) error {
	if !o.e.JSON {
		o.e.Report(ctx, cause)
		return &env.Exit{Code: code}
	}
	st, err := c.Exec(ctx, session, o.req.ID)
	if err != nil {
		return cause
	}
	if err := o.e.PrintJSON(st); err != nil {
		return err
	}
	return &env.Exit{Code: code}
}

func (o *options) complete() error {
	switch {
	case o.req.ID != "" && !id.ValidExternal(o.req.ID):
		return env.Usage("%q cannot be a command's id", o.req.ID).WithHint("Use letters, digits, '_', '-' and '.', at most %d.", id.MaxExternal)
	case len(o.req.Argv) == 0 && o.req.Code == "" && o.req.ID == "":
		return env.Usage("no command is given").WithHint("Write: perdure exec S -- CMD...")
	case o.timeout < 0:
		return env.Usage("the timeout is negative")
	case o.e.JSON && (o.interactive || o.tty):
		return env.Usage("--json does not go with -i or -t")
	}
	if o.req.ID == "" {
		o.req.ID = string(id.NewExec())
	}
	if o.timeout > 0 {
		o.req.TimeoutMS = max(1, o.timeout.Milliseconds())
	}
	var err error
	if o.req.Env, err = env.Assignments(o.e, o.req.Env); err != nil {
		return err
	}
	o.req.Stdin = o.interactive
	o.req.Background = o.background
	if o.tty {
		size := o.e.Terminal.Size()
		o.req.TTY = &size
		if term := o.e.Getenv("TERM"); term != "" {
			o.req.Env = append([]string{"TERM=" + term}, o.req.Env...)
		}
	}
	return nil
}

// collect waits for the command and prints it with its output. An id that is started again starts nothing.
func (o *options) collect(ctx context.Context, c *client.Client, session string) error {
	req := o.req
	if len(req.Argv) == 0 && req.Code == "" {
		req.Argv = []string{"true"} // not run: the id exists
	}
	req.Output, req.MaxOutput = true, maxJSON
	st, err := c.StartExec(ctx, session, req)
	if err != nil {
		return err
	}
	if err := o.e.PrintJSON(st); err != nil {
		return err
	}
	if code := exitCode(st); code != 0 {
		return &env.Exit{Code: code}
	}
	return nil
}

// maxJSON is how much of each stream --json shows, in bytes.
const maxJSON = 16 << 20

// exit turns the end of a command into that of this program.
func exit(st api.Exec) error {
	switch {
	case st.State == api.ExecLost:
		return errdefs.New(errdefs.Unavailable, "exec_lost", "the command %s was lost: %s", st.ID, st.Cause).
			WithHint("It has no exit code; whether it did its work is unknown.")
	case st.TimedOut:
		return errdefs.New(errdefs.Timeout, "exec_timeout", "the command was killed at its time limit")
	}
	if code := exitCode(st); code != 0 {
		return &env.Exit{Code: code}
	}
	return nil
}

// exitCode is never an invented 0: a command without an exit code has failed.
func exitCode(st api.Exec) int {
	switch {
	case st.State == api.ExecLost:
		return errdefs.Unavailable.ExitCode()
	case st.TimedOut:
		return errdefs.Timeout.ExitCode()
	case st.ExitCode != nil:
		return *st.ExitCode
	}
	return signalExit(st.Signal)
}
