package shim

import (
	"context"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// While a successor is made, it fits the session's spool to its own guest. So that a failure changes nothing, the old shim stands
// still meanwhile, remembers how the spool stood, and puts it back into that state when it is to go on.

// lend stops the sandbox, if it runs, and leaves the spool to a successor.
func (s *server) lend(ctx context.Context, _ none) (none, error) {
	s.life.Lock()
	defer s.life.Unlock()
	if state, err := s.alive(); err == nil && state == sandbox.Running {
		if err := s.engine.Pause(ctx); err != nil {
			return none{}, errdefs.Wrap(err, errdefs.Internal, "pause_failed", "pause the sandbox")
		}
		s.setState(sandbox.Paused)
	}
	if s.lent != nil {
		return none{}, nil
	}
	s.replaced.Store(true)
	s.guest.Drop()
	s.stale = true
	cut := s.guest.spool.Cut()
	s.lent = &cut
	return none{}, nil
}

// reclaimRequest says how to go on.
type reclaimRequest struct {
	Run bool // the sandbox ran before
}

// takeBack undoes lend, after the successor has failed.
func (s *server) takeBack(ctx context.Context, req reclaimRequest) (none, error) {
	if state, err := s.alive(); err == nil && req.Run && state == sandbox.Paused {
		return s.unpause(ctx, none{})
	}
	s.life.Lock()
	defer s.life.Unlock()
	return none{}, s.reclaim()
}

// reclaim takes a spool back that was lent. It is called with life held. Error: sandbox_replaced.
func (s *server) reclaim() error {
	if s.lent == nil {
		return nil
	}
	if !s.guest.alone() {
		return errdefs.New(errdefs.Conflict, "sandbox_replaced", "another sandbox of the session has taken over from %s", s.cfg.Spec.ID)
	}
	s.guest.Drop()
	if err := s.guest.spool.Reload(); err != nil {
		return err
	}
	if err := s.guest.spool.Rewind(*s.lent); err != nil {
		return err
	}
	s.lent = nil
	s.own()
	return nil
}

// own makes the spool this shim's. If the sandbox has died before, its commands are lost now.
func (s *server) own() {
	s.replaced.Store(false)
	if r := s.snapshot(); r.State == sandbox.Dead {
		s.guest.Dead(r.Cause)
	}
}
