package session

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

// specFlags are the flags that describe a session.
type specFlags struct {
	name, goal, model, instructions, image, driver string
	env                                            []string
	steps                                          int
	tokens                                         int64
	cost                                           float64
	turnTime                                       time.Duration
	memory, disk, snapshots                        env.Bytes
	files                                          int64
	processes, openFiles, context                  int
	idle                                           idleFlags
	checkpoints                                    env.CheckpointFlags
}

func (f *specFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.model, "model", "", "the model, as provider/model or scripted:FILE")
	fs.StringVar(&f.instructions, "instructions", "", "added to the system prompt; @FILE reads them from a file")
	fs.StringVar(&f.image, "image", "", "what the workspace starts from: host, dir:PATH, or a stored image such as debian:12")
	fs.StringVar(&f.driver, "driver", "", "what runs it: gvisor or process")
	fs.StringArrayVar(&f.env, "env", nil, "KEY=VALUE for every process in the workspace; KEY takes it from here")
	fs.IntVar(&f.steps, "max-steps", 0, "model calls per turn")
	fs.Int64Var(&f.tokens, "max-tokens", 0, "tokens, input and output, over the session's life")
	fs.Float64Var(&f.cost, "max-cost", 0, "US dollars over the session's life")
	fs.DurationVar(&f.turnTime, "max-turn-time", 0, "wall time of one turn")
	fs.Var(&f.memory, "memory", "RAM, such as 512M or 2G")
	fs.Var(&f.disk, "disk", "files above the image, such as 10G")
	fs.Int64Var(&f.files, "max-files", 0, "files and directories above the image")
	fs.IntVar(&f.openFiles, "max-open-files", 0, "files that each process may have open, 256 or more")
	fs.Var(&f.snapshots, "max-snapshot-bytes", "what checkpoints may take, such as 20G")
	fs.IntVar(&f.processes, "max-processes", 0, "processes and threads in the workspace")
	f.idle.add(fs)
	f.checkpoints.Add(fs)
	fs.IntVar(&f.context, "context-tokens", 0, "the model's window, where the provider does not know it")
}

// request makes the request. Paths of this machine are made absolute: the daemon has another working directory.
func (f *specFlags) request(e *env.Env) (api.CreateSession, error) {
	req := api.CreateSession{
		Name: f.name, Goal: f.goal, Instructions: f.instructions, Driver: f.driver, Idle: f.idle.idle(), Checkpoints: f.checkpoints.Checkpoints(),
		Limits: api.Limits{
			Steps: f.steps, TotalTokens: f.tokens, CostMicros: int64(f.cost * 1e6), TurnTimeMS: f.turnTime.Milliseconds(),
			MemoryBytes: int64(f.memory), DiskBytes: int64(f.disk), Files: f.files, Processes: f.processes, OpenFiles: f.openFiles, SnapshotBytes: int64(f.snapshots), ContextTokens: f.context,
		},
	}
	if file, ok := strings.CutPrefix(f.instructions, "@"); ok {
		data, err := os.ReadFile(file)
		if err != nil {
			return req, env.Usage("reading the instructions: %v", err)
		}
		req.Instructions = string(data)
	}
	var err error
	if req.Env, err = env.Assignments(e, f.env); err != nil {
		return req, err
	}
	if req.Model, err = absolute(f.model, "scripted:"); err != nil {
		return req, err
	}
	req.Image, err = absolute(f.image, "dir:")
	return req, err
}

func absolute(s, prefix string) (string, error) {
	path, ok := strings.CutPrefix(s, prefix)
	if !ok || path == "" {
		return s, nil
	}
	abs, err := filepath.Abs(path)
	return prefix + abs, err
}

// createOptions are those of create.
type createOptions struct {
	e    *env.Env
	spec specFlags
}

func newCreate(e *env.Env) *cobra.Command {
	o := &createOptions{e: e}
	cmd := &cobra.Command{
		Use: "create [NAME]", Short: "Make a session with a workspace and no goal yet", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if o.spec.name != "" && o.spec.name != args[0] {
					return env.Usage("the name is given twice")
				}
				o.spec.name = args[0]
			}
			return o.run(cmd.Context())
		},
	}
	o.spec.add(cmd.Flags())
	cmd.Flags().StringVar(&o.spec.name, "name", "", "the session's name")
	cmd.Flags().StringVar(&o.spec.goal, "goal", "", "a first message, to work on at once")
	return cmd
}

func (o *createOptions) run(ctx context.Context) error {
	req, err := o.spec.request(o.e)
	if err != nil {
		return err
	}
	ask := func(c *client.Client) (api.Session, error) { return c.CreateSession(ctx, req) }
	return env.Call(ctx, o.e, starting, ask, func(w io.Writer, s api.Session) {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s.ID)
		noteMissing(o.e, s)
	})
}

// starting is what create and run show meanwhile.
const starting = "starting a workspace"

// noteMissing says what a workspace has to do without.
func noteMissing(e *env.Env, s api.Session) {
	for _, m := range s.Workspace.Missing {
		e.Note("note: this workspace runs without %s", m)
	}
}
