package agent

import (
	"context"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/tool"
)

// resume brings to its result a call that an earlier Run has started. Whatever it says is the truth: a result that was
// collected, an interruption, or that nobody knows.
func (r *run) resume(ctx context.Context, def tool.Tool, env tool.Env, t session.OpenTool) error {
	r.log.Info("resuming a tool call", "tool", t.Name, "call", t.CallID, "class", def.Class)
	again := func(step context.Context) (tool.Result, error) {
		return r.opt.Tools.Run(step, env, tool.Call{Exec: id.Exec(t.Requested), Name: t.Name, Args: t.Arguments})
	}
	switch def.Class {
	case tool.ClassExec:
		return r.resumeExec(ctx, env, t, again)
	case tool.ClassRepeat:
		return r.act(ctx, env, t, false, again)
	case tool.ClassCheckpoint:
		if c, ok := r.hist.saved[t.Requested]; ok {
			return r.append(ctx, r.finished(t, tool.Checkpointed(c), 0, true))
		}
		// A checkpoint that is not in the log does not exist.
		return r.append(ctx, r.finished(t, tool.Errorf("No checkpoint was taken: the daemon was restarted during the call. Take it again if it is still wanted."), 0, false))
	}
	return r.append(ctx, r.finished(t, tool.Result{Outcome: event.OutcomeUnknown, Output: "Outcome unknown: the daemon was restarted during the call. " +
		"It may or may not have had its effect. Look at the actual state before you repeat it."}, 0, false))
}

func (r *run) resumeExec(ctx context.Context, env tool.Env, t session.OpenTool, again func(context.Context) (tool.Result, error)) error {
	st, err := env.Sandbox.Execs().Status(ctx, id.Exec(t.Requested))
	switch {
	case tool.NotFound(err) && r.hist.moved[t.Requested]:
		return r.append(ctx, r.finished(t, tool.Result{Outcome: event.OutcomeUnknown, Output: "Outcome unknown: the workspace changed its sandbox during the call, " +
			"and there is no trace of the command. It may or may not have run. Look at the actual state before you repeat it."}, 0, false))
	case tool.NotFound(err):
		// The same sandbox lives and has never heard of it, and starting is idempotent in the id: it has not run.
		return r.act(ctx, env, t, false, again)
	case err != nil:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return r.failTurn(ctx, err)
	case st.State == sandbox.ExecRunning && !st.Spec.Background:
		return r.act(ctx, env, t, false, func(step context.Context) (tool.Result, error) {
			done, err := env.Sandbox.Execs().Wait(step, st.ID)
			if err != nil {
				return tool.Result{}, err
			}
			return env.Collect(step, done)
		})
	}
	return r.act(ctx, env, t, true, func(step context.Context) (tool.Result, error) { return env.Collect(step, st) })
}
