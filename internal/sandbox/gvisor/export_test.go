package gvisor

import (
	"context"
	"os"
	"time"

	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// AwaitSpare returns true when a spare is there for a sandbox of spec, and false when there can be none.
func (d *Driver) AwaitSpare(ctx context.Context, spec sandbox.Spec) bool {
	cfg, err := d.config(ctx, spec)
	if err != nil || spec.Limits != (sandbox.Limits{}) {
		return false
	}
	binary, err := os.Stat(d.opts.Engine)
	if err != nil {
		return false
	}
	s := &d.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ready == nil && ctx.Err() == nil {
		if s.busy {
			s.mu.Unlock()
			time.Sleep(5 * time.Millisecond) // between two looks: the one that is being made ends or fails by itself
			s.mu.Lock()
			continue
		}
		s.busy = true
		s.mu.Unlock()
		d.makeSpare(ctx, cfg, binary, shim.LaunchOptions{Engine: d.opts.Engine, Mounts: true})
		s.mu.Lock()
		s.busy = false
		if s.ready == nil {
			return false
		}
	}
	return s.ready != nil
}
