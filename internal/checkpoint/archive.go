package checkpoint

import (
	"context"
	"time"

	"perdure.dev/perdure/internal/id"
)

// Archive deletes the memory directories of durable checkpoints that cold names; used is when each was used last. Their images are in the store. What is
// in use stays. It returns the bytes that it freed.
func (s *Store) Archive(ctx context.Context, cold func(c id.Checkpoint, used time.Time) bool) (freed int64, err error) {
	list, _, err := s.cached(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range list {
		if !c.stored || !cold(c.id, c.used) {
			continue
		}
		gone, err := s.shed(c.id)
		if err != nil {
			return freed, err
		}
		if gone {
			freed += c.bytes
		}
	}
	return freed, nil
}
