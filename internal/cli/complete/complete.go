// Package complete completes what is typed in a shell: sessions, checkpoints, and what flags take. It asks a daemon that runs, and starts none.
package complete

import (
	"context"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/ref"
)

//go:embed bash.sh
var bash string

// patience is how long somebody who has pressed a key waits for an answer.
const patience = 2 * time.Second

// kind says what an argument is.
type kind int

const (
	session    kind = iota + 1
	sessions        // any number of them
	point           // S or S@CKPT
	points          // any number of them
	checkpoint      // of the session before it
	location        // S:PATH, or a path here
	other           // a path here, or anything
)

// arguments are those of each command, by its path; the last one holds for all that follow if it is of any number.
var arguments = map[string][]kind{
	"cancel": {session}, "set": {session}, "port": {session, other}, "port ls": {session}, "port rm": {session, other}, "events": {session}, "show": {session}, "timeline": {session}, "transcript": {session}, "verify": {session}, "recover": {session}, "wait": {session}, "undo": {session},
	"checkpoint": {session}, "checkpoints": {session}, "checkpoints ls": {session}, "ps": {session}, "send": {session}, "python": {session}, "shell": {session},
	"pause": {sessions}, "suspend": {sessions}, "stop": {sessions}, "resume": {sessions}, "rm": {sessions},
	"exec": {session, other}, "kill": {session, other}, "fork": {point}, "export": {point}, "rollback": {session, checkpoint}, "diff": {point, point}, "checkpoints rm": {points}, "cp": {location, location},
}

// flags are what some flags take.
var flags = map[string][]string{
	"driver":    {"gvisor", "process"},
	"log-level": {"debug", "info", "warn", "error"},
	"for":       api.States(),
	"signal":    {"TERM", "INT", "KILL", "HUP", "STOP", "CONT", "USR1", "USR2"},
}

// Add gives all commands below root their completion, and root the command that prints it, in a group of the help.
func Add(root *cobra.Command, e *env.Env, group string) {
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newCompletion(e, group))
	add(root, e)
}

func add(cmd *cobra.Command, e *env.Env) {
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if kinds, ok := arguments[path]; ok {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return argument(cmd.Context(), e, kinds, args, typed)
		}
	}
	for name, values := range flags {
		if cmd.Flags().Lookup(name) != nil {
			// An error means that it has one already.
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, sub := range cmd.Commands() {
		add(sub, e)
	}
}

func argument(ctx context.Context, e *env.Env, kinds []kind, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if last := kinds[len(kinds)-1]; len(args) >= len(kinds) {
		if last != sessions && last != points && last != other {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		args = append([]string{}, args...)
		kinds = append(slices.Repeat([]kind{last}, len(args)), last)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e.Spawn = nil
	switch kinds[len(args)] {
	case session, sessions:
		return names(ctx, e, args, typed, ""), cobra.ShellCompDirectiveNoFileComp
	case checkpoint:
		return marks(ctx, e, args[0], ""), cobra.ShellCompDirectiveNoFileComp
	case point, points:
		if name, _, at := strings.Cut(typed, "@"); at {
			return marks(ctx, e, name, name+"@"), cobra.ShellCompDirectiveNoFileComp
		}
		return names(ctx, e, args, typed, ""), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case location:
		if strings.ContainsAny(typed, ":/") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return names(ctx, e, nil, typed, ":"), cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// names are the names of sessions that begin with what is typed, less those that are there already. Whoever cannot be asked has none.
func names(ctx context.Context, e *env.Env, less []string, typed, suffix string) []string {
	c, err := e.Client(ctx)
	if err != nil {
		return nil
	}
	all, err := env.All(func(s api.Session) string { return s.ID }, func(p api.Page) (api.List[api.Session], error) { return c.Sessions(ctx, p) })
	if err != nil {
		return nil
	}
	var out []string
	for _, s := range all.Data {
		if strings.HasPrefix(s.Name, typed) && !slices.Contains(less, s.Name) {
			out = append(out, s.Name+suffix)
		}
	}
	return out
}

// marks are the messages of a session's checkpoints, and the ids of those that have none.
func marks(ctx context.Context, e *env.Env, name, prefix string) []string {
	c, err := e.Client(ctx)
	if err != nil {
		return nil
	}
	all, err := ref.Checkpoints(ctx, c, name)
	if err != nil {
		return nil
	}
	var out []string
	for _, k := range slices.Backward(all.Data) {
		mark := prefix + k.ID
		if k.Message != "" {
			mark = prefix + k.Message
		}
		if !slices.Contains(out, mark) && !strings.ContainsAny(mark, "\n\r\t") {
			out = append(out, mark)
		}
	}
	return out
}

func newCompletion(e *env.Env, group string) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", GroupID: group, Short: "Print completion for a shell", Args: cobra.ExactArgs(1), ValidArgs: []string{"bash", "zsh", "fish"},
		Long: "Print completion for a shell, of commands, sessions and checkpoints. For bash, put this into ~/.bashrc:\n\n  source <(perdure completion bash)\n\n" +
			"For zsh, into ~/.zshrc after compinit:\n\n  source <(perdure completion zsh)\n\nFor fish, once:\n\n  perdure completion fish > ~/.config/fish/completions/perdure.fish",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				_, err := e.Out.Write([]byte(bash))
				return err
			case "zsh":
				return cmd.Root().GenZshCompletion(e.Out)
			case "fish":
				return cmd.Root().GenFishCompletion(e.Out, true)
			}
			return env.Usage("there is no completion for %q", args[0]).WithHint("Use bash, zsh or fish.")
		},
	}
}
