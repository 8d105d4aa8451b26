// Package cli is the command line. Each noun has a package below this one; this one puts them together and turns what they return
// into an exit code.
//
// Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict or wrong state, 5 denied, 6 timed out, 7 unavailable, 130 interrupted; exec, shell
// and python pass the command's own code through.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/internal/cli/checkpoint"
	"perdure.dev/perdure/internal/cli/complete"
	"perdure.dev/perdure/internal/cli/demo"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/exec"
	"perdure.dev/perdure/internal/cli/file"
	"perdure.dev/perdure/internal/cli/image"
	"perdure.dev/perdure/internal/cli/port"
	"perdure.dev/perdure/internal/cli/session"
	"perdure.dev/perdure/internal/cli/system"
	"perdure.dev/perdure/internal/cli/transfer"
	"perdure.dev/perdure/internal/errdefs"
)

// Main runs the command line in the process's own environment and returns the exit code.
func Main(ctx context.Context, serve system.Serve) int {
	e := &env.Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Terminal: env.SystemTerminal{}, Spawn: env.SpawnDaemon,
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the program
		for sig := range signals {
			if sig == os.Interrupt && e.Interrupts.Deliver() {
				continue
			}
			cancel(env.ErrInterrupted)
		}
	}()
	return Run(ctx, e, serve, os.Args[1:])
}

// Run runs one command line in an environment and returns the exit code.
func Run(ctx context.Context, e *env.Env, serve system.Serve, args []string) int {
	root := Root(e, serve)
	root.SetArgs(args)
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	cmd, err := root.ExecuteContextC(ctx)
	return e.Report(ctx, usage(cmd, err))
}

// Root is the whole command.
func Root(e *env.Env, serve system.Serve) *cobra.Command {
	root := &cobra.Command{
		Use: "perdure", Short: "A runtime for agents whose work lasts",
		Long: "Perdure runs agents whose work lasts: the transcript, the files, and the processes with their RAM are one thing, which lives, sleeps,\n" +
			"forks and comes back together. S names a session by name or id, S@CKPT one of its checkpoints by id or message.",
		SilenceErrors: true, SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "" && cmd.Name() != "run" {
				return env.Usage("the first argument is empty").WithHint("Usage: %s", cmd.UseLine())
			}
			return nil
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&e.Data, "data", "", "the data directory (default $PERDURE_DATA, /var/lib/perdure for root, or ~/.local/share/perdure)")
	f.StringVar(&e.Socket, "socket", "", "the daemon's Unix socket (default perdure.sock in the data directory)")
	f.StringVar(&e.Host, "host", "", "the daemon's TCP address (default $PERDURE_HOST)")
	f.StringVar(&e.Token, "token", "", "the token for --host (default $PERDURE_TOKEN)")
	f.BoolVar(&e.JSON, "json", false, "print the API's own objects")
	root.MarkFlagsMutuallyExclusive("socket", "host")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return env.Usage("%v", err).WithHint("See: %s --help", cmd.CommandPath())
	})
	group(root, "sessions", "Sessions:", session.Commands(e)...)
	group(root, "commands", "Commands and files:", append(append(exec.Commands(e), file.Commands(e)...), port.Command(e))...)
	group(root, "checkpoints", "Checkpoints:", slices.Concat(checkpoint.Commands(e), session.Comparing(e), transfer.Commands(e))...)
	group(root, "sleep", "Sleep:", session.Lifecycle(e)...)
	group(root, "machine", "The machine:", append(append(system.Commands(e, serve), image.Commands(e)...), demo.Commands(e)...)...)
	complete.Add(root, e, "machine")
	root.SetHelpCommand(help())
	return root
}

// help is cobra's own command but for what it does about a command that does not exist.
func help() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command", GroupID: "machine",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return env.Usage("there is no command %q", strings.Join(args, " ")).WithHint("See: perdure --help")
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// group adds commands under a heading of the help.
func group(root *cobra.Command, id, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range cmds {
		c.GroupID = id
	}
	root.AddCommand(cmds...)
}

// usage gives the errors of cobra itself, which have no type, the kind of a usage error.
func usage(cmd *cobra.Command, err error) error {
	var typed *errdefs.Error
	var exit *env.Exit
	switch {
	case err == nil, errors.As(err, &typed), errors.As(err, &exit), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, io.ErrClosedPipe), errors.Is(err, syscall.EPIPE):
		return errdefs.Wrap(err, errdefs.Internal, "output_closed", "writing the result")
	}
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "unknown command") && cmd.HasParent() && !cmd.HasSubCommands():
		return env.Usage("%s takes no arguments", cmd.CommandPath()).WithHint("Usage: %s", cmd.UseLine())
	case strings.HasPrefix(text, "unknown command"):
		return env.Usage("%v", err).WithHint("See: %s --help", cmd.CommandPath())
	case strings.HasPrefix(text, "accepts "), strings.HasPrefix(text, "requires at least"), strings.HasPrefix(text, "required flag"):
		return env.Usage("%v", err).WithHint("Usage: %s", cmd.UseLine())
	case strings.HasPrefix(text, "if any flags in the group"):
		_, both, _ := strings.Cut(text, "; [")
		both, _, _ = strings.Cut(both, "]")
		return env.Usage("--%s exclude each other", strings.Join(strings.Fields(both), " and --")).WithHint("See: %s --help", cmd.CommandPath())
	}
	return err
}
