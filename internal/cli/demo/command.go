package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
)

// The drivers that the demo knows.
const (
	gvisor  = "gvisor"
	process = "process"
)

type options struct {
	e      *env.Env
	driver string
	keep   bool
}

// Commands are the commands of this package.
func Commands(e *env.Env) []*cobra.Command {
	o := &options{e: e}
	cmd := &cobra.Command{
		Use: "demo", Short: "Show one session whole, on a throw-away daemon", Args: cobra.NoArgs,
		Long: "Show one session whole: an agent loads a file into memory and serves it; its daemon is killed in mid-command; it sleeps on disk and wakes;\n" +
			"three forks try three ways; a rollback brings files, RAM and transcript back. The model is a script, all else is real. Nothing is left behind.",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&o.driver, "driver", gvisor, "what runs the workspaces: gvisor or process (no isolation, no RAM in checkpoints)")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "leave the daemon and its sessions, to look at them")
	return []*cobra.Command{cmd}
}

// cleanLimit bounds the cleaning up, which goes on after ^C.
const cleanLimit = 2 * time.Minute

func (o *options) run(ctx context.Context) error {
	if o.driver != gvisor && o.driver != process {
		return env.Usage("there is no driver %q", o.driver).WithHint("--driver is gvisor or process.")
	}
	if o.e.Data != "" || o.e.Socket != "" || o.e.Host != "" {
		return env.Usage("the demo has a daemon of its own: --data, --socket and --host have no place here")
	}
	s := &story{teller: newTeller(o.e), driver: o.driver, keep: o.keep, fig: Figures{Model: "scripted"}}
	err := s.tell(ctx)
	logTail := s.logTail()
	cctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanLimit, errdefs.New(errdefs.Timeout, "demo_clean_timeout", "cleaning up took too long"))
	defer cancel()
	if s.keep && err == nil {
		s.leave()
	} else {
		err = errors.Join(err, s.clean(cctx))
	}
	s.fig.OK = err == nil
	s.fig.TotalMS = ms(time.Since(s.start))
	if perr := s.report(); err == nil {
		err = perr
	}
	if err == nil {
		return nil
	}
	if logTail != "" && !errors.Is(context.Cause(ctx), env.ErrInterrupted) {
		o.e.Note("the end of the daemon's log:\n%s\n", logTail)
	}
	// Whatever kind the cause has, the demo has failed.
	return errdefs.Wrap(err, errdefs.Internal, "demo_failed", "the demo did not hold")
}

// leave tells how to look at what was kept, and how to end it.
func (s *story) leave() {
	s.fig.Kept = s.daemon.dir
	s.chapter("Kept")
	s.say("look around:  perdure --data %s ls", s.daemon.dir)
	s.say("end it:       perdure --data %s rm SESSION for each; kill %d; rm -r %s", s.daemon.dir, s.daemon.pid(), s.root)
}

// report ends the telling: a table for people, an object with --json.
func (s *story) report() error {
	if s.e.JSON {
		return s.e.PrintJSON(s.fig)
	}
	if !s.fig.OK {
		return nil
	}
	s.chapter("Times and sizes")
	var rows [][]string
	for _, st := range s.fig.Steps {
		size := ""
		if st.Bytes > 0 {
			size = env.Size(st.Bytes)
		}
		rows = append(rows, []string{seconds(st.MS), size, st.Name})
	}
	table(s.e.Out, rows)
	s.chapter("What this showed")
	for _, c := range s.fig.Claims {
		fmt.Fprintf(s.e.Out, "  ✓ %s\n", c)
	}
	for _, k := range s.fig.Skipped {
		fmt.Fprintf(s.e.Out, "  – not shown: %s\n", k)
	}
	fmt.Fprintf(s.e.Out, "\n%d claims, all checked, in %s.\n", len(s.fig.Claims), seconds(s.fig.TotalMS))
	return nil
}
