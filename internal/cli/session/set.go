package session

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

// idleFlags are the thresholds of a session.
type idleFlags struct{ pause, suspend, archive, expire env.Threshold }

func (f *idleFlags) add(fs *pflag.FlagSet) {
	fs.Var(env.ThresholdVar(&f.pause), "idle-pause", "idle for so long, it gets no CPU and keeps its RAM; never switches it off")
	fs.Var(env.ThresholdVar(&f.suspend), "idle-suspend", "idle for so long, its RAM goes to the store; never switches it off")
	fs.Var(env.ThresholdVar(&f.archive), "idle-archive", "asleep for so long, its RAM is in the store only, compressed and encrypted")
	fs.Var(env.ThresholdVar(&f.expire), "expire-after", "awake for so long in all, its work is saved, and it wakes no more")
}

func (f *idleFlags) idle() api.Idle {
	return api.Idle{PauseAfterMS: f.pause.MS, SuspendAfterMS: f.suspend.MS, ArchiveAfterMS: f.archive.MS, ExpireAfterMS: f.expire.MS}
}

func newSet(e *env.Env) *cobra.Command {
	f, k := &idleFlags{}, &env.CheckpointFlags{}
	cmd := &cobra.Command{
		Use: "set S", Short: "Change when a session sleeps, and when checkpoints of it are taken", Args: cobra.ExactArgs(1),
		Long: "Change when a session that nobody uses is put to sleep, for how long it may be awake in all, and when checkpoints are taken of it by\n" +
			"themselves. A time is such as 90s, 20m, 2h or 7d; never switches it off, and default goes back to the daemon's. What is not given stays.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			req := api.ConfigureIdle{PauseAfterMS: f.pause.Given(), SuspendAfterMS: f.suspend.Given(), ArchiveAfterMS: f.archive.Given(), ExpireAfterMS: f.expire.Given()}
			all := api.ConfigureSession{Checkpoints: k.Given()}
			if req != (api.ConfigureIdle{}) {
				all.Idle = &req
			}
			if all == (api.ConfigureSession{}) {
				return env.Usage("there is nothing to change").WithHint("perdure set --help lists what can be changed.")
			}
			ask := func(c *client.Client) (api.Session, error) { return c.ConfigureSession(ctx, args[0], all) }
			return env.Call(ctx, e, "", ask, func(w io.Writer, s api.Session) {
				text := idleText(s.Idle)
				if parts := env.CheckpointText(s.Checkpoints); len(parts) > 0 {
					text += "; checkpoints: " + strings.Join(parts, ", ")
				}
				fmt.Fprintf(w, "%s: %s\n", s.Name, text)
			})
		},
	}
	f.add(cmd.Flags())
	k.Add(cmd.Flags())
	return cmd
}

// idleText says what a session says about being idle.
func idleText(i api.Idle) string {
	var parts []string
	for _, p := range []struct {
		verb string
		ms   int64
	}{{"pause", i.PauseAfterMS}, {"suspend", i.SuspendAfterMS}, {"archive", i.ArchiveAfterMS}, {"expire", i.ExpireAfterMS}} {
		switch {
		case p.ms < 0:
			parts = append(parts, p.verb+" never")
		case p.ms > 0:
			parts = append(parts, p.verb+" after "+env.ShortTime(time.Duration(p.ms)*time.Millisecond))
		}
	}
	if len(parts) == 0 {
		return "the daemon's defaults"
	}
	return strings.Join(parts, ", ")
}

// idleLines say what keeps a workspace awake, and what becomes of it otherwise.
func idleLines(s api.Session) (notIdle, next string) {
	var reasons []string
	for _, r := range s.Workspace.IdleReasons {
		reasons = append(reasons, fmt.Sprintf("%s, for %s", r.Detail, env.Ago(r.Since)))
	}
	var steps []string
	if at := s.Workspace.PausesAt; at != nil {
		steps = append(steps, "pauses in "+in(*at))
	}
	if at := s.Workspace.SuspendsAt; at != nil {
		steps = append(steps, "suspends in "+in(*at))
	}
	if since := s.Workspace.IdleSince; since != nil {
		next = strings.Join(append([]string{"for " + env.Ago(*since)}, steps...), "; ")
	}
	return strings.Join(reasons, "; "), next
}

func in(at time.Time) string { return env.ShortTime(max(time.Until(at), 0).Round(time.Second)) }

// failedHooks says which programs of the workspace did not do what they were to do.
func failedHooks(runs []api.HookRun) string {
	var failed []string
	for _, h := range runs {
		what := h.Cause
		switch {
		case h.ExitCode == nil:
		case *h.ExitCode == 0:
			continue
		default:
			what = fmt.Sprintf("exit %d", *h.ExitCode)
		}
		failed = append(failed, strings.TrimSpace(fmt.Sprintf("hook %s %s", h.Occasion, h.Name))+": "+what)
	}
	return strings.Join(failed, ", ")
}
