package shim

import (
	"context"
	"errors"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// RestoreBeside is the rollback of engines that cannot do it in place: while old stands still, restore makes its successor; then old
// goes. If restore fails, old is as it was.
func RestoreBeside(ctx context.Context, old sandbox.Sandbox, restore func(ctx context.Context) (*Client, error)) (sandbox.Sandbox, error) {
	prior, ok := old.(*Client)
	if !ok {
		return nil, errdefs.New(errdefs.Invalid, "driver_mismatch", "sandbox %s is not one of this driver", old.ID())
	}
	st, err := prior.Status(ctx)
	if err != nil {
		return nil, err
	}
	_, err = living[none](ctx, prior, pathLend, none{})
	gone := errdefs.CodeOf(err) == "sandbox_dead" // with its shim: there is nothing to take back
	if err != nil && !gone {
		return nil, err
	}
	next, err := restore(ctx)
	if err != nil {
		if !gone {
			_, rerr := living[none](context.WithoutCancel(ctx), prior, pathReclaim, reclaimRequest{Run: st.State == sandbox.Running})
			err = errors.Join(err, rerr)
		}
		return nil, err
	}
	// From here on next is the sandbox: two must not run. An old one that does not end when asked is killed.
	replaced := destroyRequest{Replaced: true}
	if err := prior.destroy(context.WithoutCancel(ctx), replaced); err != nil {
		err = errors.Join(reap(prior.dir), emptyDir(prior.dir))
		return next, errdefs.Wrap(err, errdefs.Internal, "rollback_leftover", "end the sandbox that was rolled back")
	}
	return next, nil
}
