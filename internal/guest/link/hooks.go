package link

import (
	"context"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/sandbox"
)

// Hooks runs the hooks of an occasion inside; see sandbox.Guest. A guest from before there were hooks has none.
func (l *Link) Hooks(ctx context.Context, req sandbox.Hooks) ([]sandbox.HookRun, error) {
	var res wire.HooksResult
	args := wire.HooksArgs{Occasion: req.Occasion, Env: req.Env, Each: req.Each, All: req.All}
	if _, err := l.call(ctx, wire.MethodHooks, args, nil, &res); err != nil {
		if errdefs.CodeOf(err) == "guest_method" {
			return nil, nil
		}
		return nil, err
	}
	var out []sandbox.HookRun
	for _, r := range res.Runs[:min(len(res.Runs), wire.MaxHooks+1)] {
		run := sandbox.HookRun{Name: clip(r.Name), ExitCode: r.ExitCode, Cause: clip(r.Cause), Took: max(r.Took, 0)}
		run.Output = r.Output[:min(len(r.Output), wire.MaxHookOutput+4)]
		out = append(out, run)
	}
	return out, nil
}
