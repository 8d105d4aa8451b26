package agent

import (
	"context"
	"errors"
	"syscall"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/tool"
)

// finished is the result of a call as an event.
func (r *run) finished(t session.OpenTool, res tool.Result, took time.Duration, collected bool) event.Draft {
	return event.Draft{Type: event.ToolFinished, CausationID: t.Requested, Data: event.ToolFinishedData{
		CallID: t.CallID, Outcome: res.Outcome, Output: orElse(res.Output, "(no output)"), Artifact: res.Artifact,
		ExitCode: res.ExitCode, DurationMS: took.Milliseconds(), Collected: collected,
	}}
}

// call brings one open call to its result.
func (r *run) call(ctx context.Context, t session.OpenTool) error {
	if t.Requested == "" {
		// A message that asks for calls which nobody logged: not written by this loop, which appends both at once.
		t.Requested = id.NewEvent()
		return r.append(ctx, event.Draft{ID: t.Requested, Type: event.ToolRequested, Data: event.ToolRequestedData{
			ToolCall: event.ToolCall{CallID: t.CallID, Name: t.Name, Arguments: t.Arguments, Cut: t.Cut},
		}})
	}
	if t.Cut {
		return r.append(ctx, r.finished(t, tool.Errorf(
			"Not run: the arguments of this call arrived incomplete or were not a JSON object. Send the call again, in smaller parts if it is long."), 0, false))
	}
	def, known := r.opt.Tools.Find(t.Name)
	if !known {
		res, err := r.opt.Tools.Run(ctx, tool.Env{}, tool.Call{Name: t.Name})
		if err != nil {
			return err
		}
		return r.append(ctx, r.finished(t, res, 0, false))
	}
	env, err := r.env(ctx, def)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return r.failTurn(ctx, err) // nothing can run without a workspace
	}
	// Waking the workspace may have taken long, and says in the log how it went.
	if err := r.sync(ctx); err != nil {
		return err
	}
	if r.hist.stopAsked() != "" {
		return nil // the next round closes the call
	}
	if t.Started {
		return r.resume(ctx, def, env, t)
	}
	started := event.ToolStartedData{CallID: t.CallID}
	if def.Class == tool.ClassExec {
		started.ExecID = id.Exec(t.Requested)
	}
	if err := r.append(ctx, event.Draft{Type: event.ToolStarted, CausationID: t.Requested, Data: started}); err != nil {
		return err
	}
	return r.act(ctx, env, t, false, func(step context.Context) (tool.Result, error) {
		return r.opt.Tools.Run(step, env, tool.Call{Exec: id.Exec(t.Requested), Name: t.Name, Args: t.Arguments})
	})
}

// env is what a tool acts on. It wakes the workspace if the tool needs it.
func (r *run) env(ctx context.Context, def tool.Tool) (tool.Env, error) {
	env := tool.Env{
		Session: r.host.Session(), Artifacts: r.host.Artifacts(), Checkpoint: r.host.Checkpoint,
		Home: r.opt.Home, Here: image.IsStored(r.spec.Image), MaxOutput: r.opt.MaxOutput,
	}
	if def.NoSandbox {
		return env, nil
	}
	sb, err := r.host.Sandbox(ctx)
	env.Sandbox = sb
	return env, err
}

// act does what a call asks for, watched, and appends the result. When the step is stopped, the call stays open and the next
// round closes it.
func (r *run) act(ctx context.Context, env tool.Env, t session.OpenTool, collected bool, do func(context.Context) (tool.Result, error)) error {
	begin := r.opt.Clock.Now()
	var res tool.Result
	var cause error
	err := r.watched(ctx, func(step context.Context) (err error) {
		res, err = do(step)
		if err != nil {
			cause = context.Cause(step)
		}
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(cause, errTurnTime):
		return r.limitTurn(ctx, r.timeLimit())
	case errors.Is(cause, errStopAsked):
		return r.sync(ctx)
	default:
		r.log.Warn("a tool's result cannot be had", "tool", t.Name, "call", t.CallID, "err", err)
		res = tool.Failure(err)
	}
	drafts := []event.Draft{r.finished(t, res, r.opt.Clock.Now().Sub(begin), collected)}
	if res.Finish != nil {
		drafts = append(drafts, r.finishSession(t, *res.Finish)...)
	}
	return r.append(ctx, drafts...)
}

// finishSession ends the turn with the finish tool's result. Calls that the model made beside it are not run.
func (r *run) finishSession(t session.OpenTool, result string) []event.Draft {
	var drafts []event.Draft
	for _, o := range r.hist.view.OpenTools {
		if o.Requested == t.Requested {
			continue
		}
		drafts = append(drafts, r.finished(o, tool.Result{Outcome: event.OutcomeCanceled, Output: "Not run: finish was called before it."}, 0, false))
	}
	return append(drafts,
		event.Draft{Type: event.SessionFinished, CausationID: t.Requested, Data: event.SessionFinishedData{Result: result}},
		r.turnFinished(reasonFinished))
}

// cancelCall stops a call that was started, and returns its result.
func (r *run) cancelCall(ctx context.Context, t session.OpenTool, why string) (tool.Result, error) {
	res := tool.Result{Outcome: event.OutcomeCanceled, Output: "Canceled: " + why + ". It may have had effects already."}
	if t.ExecID == "" {
		return res, nil
	}
	sb, err := r.host.Sandbox(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
		res.Output += " Its sandbox cannot be reached: " + err.Error()
		return res, nil
	}
	st, err := sb.Execs().Status(ctx, t.ExecID)
	if tool.NotFound(err) {
		return tool.Result{Outcome: event.OutcomeCanceled, Output: "Not run: " + why + "."}, nil
	}
	if err == nil && st.State == sandbox.ExecRunning && !st.Spec.Background {
		st, err = r.stopExec(ctx, sb.Execs(), t.ExecID)
	}
	if err == nil {
		var got tool.Result
		env := tool.Env{Session: r.host.Session(), Sandbox: sb, Artifacts: r.host.Artifacts(), Home: r.opt.Home, Here: image.IsStored(r.spec.Image), MaxOutput: r.opt.MaxOutput}
		if got, err = env.Collect(ctx, st); err == nil {
			got.Outcome = event.OutcomeCanceled
			got.Output += "\n[canceled: " + why + "]"
			return got, nil
		}
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	res.Output += " Its state is not known: " + err.Error()
	return res, nil
}

// stopExec interrupts a command and kills it if it does not react in time.
func (r *run) stopExec(ctx context.Context, execs sandbox.Execs, exec id.Exec) (sandbox.ExecStatus, error) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		if err := execs.Signal(ctx, exec, int(sig)); err != nil {
			r.log.Warn("cannot signal a command", "exec", exec, "signal", sig, "err", err)
		}
		wait, stop := context.WithTimeout(ctx, r.opt.Grace)
		st, err := execs.Wait(wait, exec)
		stop()
		if err == nil || ctx.Err() != nil {
			return st, err
		}
	}
	return execs.Status(ctx, exec)
}
