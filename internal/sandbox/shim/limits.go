package shim

import (
	"context"
	"errors"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// limit has the limits kept inside. What cannot be kept is said, and keeps no sandbox from starting.
func (s *server) limit(ctx context.Context) {
	limits := s.cfg.Spec.Limits
	if limits.Whole() != (sandbox.Limits{}) || s.cfg.Image != nil { // a restored guest has the limits of its image
		if err := s.guest.Confine(ctx, limits.Processes, limits.MemoryBytes); err != nil && limits.Processes > 0 {
			s.update(func(r *Record) { r.Running.Missing = append(r.Running.Missing, "process limit: "+err.Error()) })
		}
	}
}

// guard keeps the memory limit. It is owned by start and ends with the sandbox, or the shim.
func (s *server) guard(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.dead:
		case <-s.gone:
		case <-ctx.Done():
		}
		cancel(errors.New("the sandbox has ended"))
	}()
	s.engine.Guard(ctx, func(ctx context.Context, limit int64) (bool, error) {
		killed, err := s.guest.Relieve(ctx, limit)
		if killed == nil {
			if errdefs.CodeOf(err) == "guest_method" {
				err = errors.Join(err, errors.New("the guest of this checkpoint is older"))
			}
			return false, err
		}
		s.log.Warn("a process was killed for the memory limit", "pid", killed.PID, "name", killed.Name, "rss", killed.RSS, "limit", limit)
		return true, nil
	})
}
