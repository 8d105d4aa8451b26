// Package system holds the commands about the daemon and its machine: serve, doctor and version.
package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
)

// ServeOptions are the flags of serve.
type ServeOptions struct {
	DataDir   string   // absolute
	Listen    string   // a TCP address besides the Unix socket; may be empty
	HostNames []string // DNS names under which it may be addressed over TCP
	LogLevel  string   // debug, info, warn or error
	Ready     func()   // to be called once the daemon answers
	// ImageCache is how many bytes memory images may take as files, beside the store that has them all.
	ImageCache     env.Bytes
	PlainSnapshots bool // new memory images are sealed with a key that is no secret
	// What becomes of sessions that nobody uses and that say nothing else themselves.
	IdlePause, IdleSuspend, IdleArchive, ExpireAfter env.Threshold
	// Checkpoints say when checkpoints are taken of sessions that say nothing else themselves; nil: as usual.
	Checkpoints *api.ConfigureCheckpoints
	HookTime    time.Duration // that one hook in a workspace may take; all together three times as long
}

// Serve runs a daemon until ctx ends. It is passed in by main, so that the command line does not import the daemon.
type Serve func(ctx context.Context, o ServeOptions) error

// Commands are the commands of this package.
func Commands(e *env.Env, serve Serve) []*cobra.Command {
	return []*cobra.Command{newServe(e, serve), newDoctor(e), newVersion(e)}
}

func newServe(e *env.Env, serve Serve) *cobra.Command {
	var auto env.CheckpointFlags
	encrypt := true
	o := ServeOptions{ImageCache: 8 << 30, IdleSuspend: env.NewThreshold(30 * time.Minute)}
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the daemon", Args: cobra.NoArgs,
		Long: "Run the daemon in the foreground. It listens on a Unix socket in the data directory, and with --listen on TCP for those who have a token\n" +
			"(lines of NAME ROLE TOKEN in the file tokens in the data directory). Ending it ends no workspace.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := e.DataDir()
			if err != nil {
				return err
			}
			if serve == nil {
				return errdefs.New(errdefs.Unavailable, "no_daemon", "this build holds no daemon").WithHint("Build cmd/perdure.")
			}
			o.DataDir, o.Checkpoints, o.PlainSnapshots = dir, auto.Given(), !encrypt
			how := env.Serving{Listen: o.Listen, HostNames: o.HostNames, Flags: env.FlagsOf(cmd.LocalNonPersistentFlags(), "listen", "host-name")}
			return keepServing(cmd.Context(), e, serve, o, how)
		},
	}
	cmd.Flags().StringVar(&o.Listen, "listen", "", "a TCP address to listen on, such as 127.0.0.1:7070")
	cmd.Flags().StringSliceVar(&o.HostNames, "host-name", nil, "a DNS name under which it may be addressed over TCP")
	cmd.Flags().Var(&o.ImageCache, "image-cache", "memory images that are kept as files for a fast resume, beside the compressed and encrypted store that has them all")
	cmd.Flags().BoolVar(&encrypt, "encrypt-snapshots", true, "seal the memory images of new sessions with a key of their own that is a secret")
	cmd.Flags().Var(env.ThresholdVar(&o.IdlePause), "idle-pause", "pause sessions that are idle for so long and say nothing else themselves (default never)")
	cmd.Flags().Var(env.ThresholdVar(&o.IdleSuspend), "idle-suspend", "suspend sessions that are idle for so long, unless their driver keeps no memory")
	cmd.Flags().Var(env.ThresholdVar(&o.IdleArchive), "idle-archive", "keep the RAM of sessions that sleep for so long in the store only (default never)")
	cmd.Flags().Var(env.ThresholdVar(&o.ExpireAfter), "expire-after", "save sessions that have been awake for so long in all, and let them wake no more (default never)")
	auto.Add(cmd.Flags())
	cmd.Flags().DurationVar(&o.HookTime, "hook-time", 10*time.Second, "how long a hook in a workspace may take; all together three times as long")
	cmd.Flags().StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// keepServing serves, and notes in the data directory how, for whoever is to replace a daemon that died.
func keepServing(ctx context.Context, e *env.Env, serve Serve, o ServeOptions, how env.Serving) error {
	kept := false
	o.Ready = func() { // only now is the data directory known to be this daemon's
		if err := how.Keep(o.DataDir, e.Getenv); err != nil {
			e.Note("perdure: a daemon that replaces this one if it dies will not know how it was started: %v", err)
			return
		}
		kept = true
	}
	err := serve(ctx, o)
	if kept {
		err = errors.Join(err, how.Forget(o.DataDir))
	}
	return err
}

func newDoctor(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what this machine can do, and what not and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd.Context(), e) },
	}
}

func doctor(ctx context.Context, e *env.Env) error {
	d, err := env.Ask(ctx, e, "", func(c *client.Client) (api.DoctorReport, error) { return c.Doctor(ctx) })
	if err != nil {
		return err
	}
	err = e.Print(d, func(w io.Writer) { tell(w, d) })
	if err == nil && !d.OK {
		return &env.Exit{Code: errdefs.Internal.ExitCode()}
	}
	return err
}

// tell prints a report. What a driver can do, and the check of it, are told as one.
func tell(w io.Writer, d api.DoctorReport) {
	mark := map[string]string{"ok": "✓", "warn": "!", "fail": "✗"}
	drivers := map[string]api.DriverReport{}
	for _, x := range d.Drivers {
		drivers["driver "+x.Name] = x
	}
	for _, c := range d.Checks {
		detail, missing := c.Detail, []string(nil)
		if x, ok := drivers[c.Name]; ok {
			missing = x.Missing
			switch {
			case !x.Available:
				detail = "cannot run sandboxes here"
			case x.Memory:
				detail = fmt.Sprintf("isolation %s, keeps files and memory", x.Isolation)
			default:
				detail = fmt.Sprintf("isolation %s, keeps files", x.Isolation)
			}
		}
		fmt.Fprintf(w, "%s %s: %s\n", mark[c.Status], c.Name, env.Plain(detail))
		for _, m := range missing {
			fmt.Fprintf(w, "    %s\n", env.Plain(m))
		}
		if c.Hint != "" {
			fmt.Fprintf(w, "    → %s\n", c.Hint)
		}
	}
}

func newVersion(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := Build()
			return e.Print(b, func(w io.Writer) { fmt.Fprintf(w, "perdure %s %s %s/%s\n", b.Version, b.Go, b.OS, b.Arch) })
		},
	}
}

// Build is the version of this build, as the linker or the module system recorded it.
func Build() api.BuildInfo {
	b := api.BuildInfo{Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}
