package service

import (
	"context"
	"slices"
	"strconv"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

// HookTime is how long hooks inside a workspace may take. Zero means the default.
type HookTime struct {
	Each time.Duration // 10 s
	All  time.Duration // three times as long
}

const (
	defaultHookTime = 10 * time.Second
	hookShare       = 3
	hookGrace       = 10 * time.Second // that a guest may be late with its answer
)

func (t HookTime) orDefault() HookTime {
	if t.Each <= 0 {
		t.Each = defaultHookTime
	}
	if t.All <= 0 {
		t.All = hookShare * t.Each
	}
	return t
}

// hooks runs the hooks of an occasion in a sandbox, and says what came of them. They never make an operation fail, and hold it up for a bounded time.
func (s *Service) hooks(ctx context.Context, sid id.Session, sb sandbox.Sandbox, occasion string, env ...string) []event.HookRun {
	limit := s.cfg.Hooks.orDefault()
	ctx, cancel := context.WithTimeout(ctx, limit.All+hookGrace)
	defer cancel()
	env = append(slices.Clip(env), "PERDURE_SESSION="+string(sid), "PERDURE_EPOCH="+string(sb.ID()))
	runs, err := sb.Hooks(ctx, sandbox.Hooks{Occasion: occasion, Env: env, Each: limit.Each, All: limit.All})
	if err != nil {
		s.cfg.Logger.Warn("hooks could not be run", "session", sid, "occasion", occasion, "error", err)
		return []event.HookRun{{Occasion: occasion, Cause: "they could not be run: " + err.Error()}}
	}
	var out []event.HookRun
	for _, r := range runs {
		if !r.OK() {
			s.cfg.Logger.Warn("a hook failed", "session", sid, "occasion", occasion, "hook", r.Name, "cause", r.Cause)
		}
		out = append(out, event.HookRun{Occasion: occasion, Name: r.Name, ExitCode: r.ExitCode, Cause: r.Cause, Output: r.Output, DurationMS: r.Took.Milliseconds()})
	}
	return out
}

// preSuspend runs the hooks of a workspace that is about to be put to sleep. One that the runtime has paused runs for them; one that somebody
// has paused stays so, without them. It reports whether the sandbox runs now and did not before.
func (l *live) preSuspend(ctx context.Context, st session.State, sb sandbox.Sandbox, kind event.CheckpointKind) (runs []event.HookRun, woken bool) {
	if st.Workspace.State == session.WorkspacePaused {
		if st.Life.Asked {
			return nil, false
		}
		if err := sb.Unpause(ctx); err != nil {
			return []event.HookRun{{Occasion: sandbox.HookPreSuspend, Cause: "they could not be run: " + err.Error()}}, false
		}
		woken = true
	}
	return l.svc.hooks(ctx, l.id, sb, sandbox.HookPreSuspend, "PERDURE_OPERATION="+string(kind)), woken
}

// hooked adds what hooks did to a report.
func (r *restore) hooked(ctx context.Context, sid id.Session, sb sandbox.Sandbox, out *event.ResumeReport) {
	occasion, env := sandbox.HookPostResume, []string{}
	if sid != r.manifest.SessionID && r.fork {
		occasion, env = sandbox.HookPostFork, append(env, "PERDURE_FORK_OF="+string(r.manifest.SessionID))
	}
	slept := r.svc.cfg.Clock.Now().Sub(r.manifest.CreatedAt)
	env = append(env, "PERDURE_CHECKPOINT="+string(r.manifest.ID), "PERDURE_SLEPT_SECONDS="+strconv.FormatInt(int64(slept.Seconds()), 10))
	out.Hooks = r.svc.hooks(ctx, sid, sb, occasion, env...)
}
