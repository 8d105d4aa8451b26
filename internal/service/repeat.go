package service

import (
	"context"

	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// once is how a request with an idempotency key is known again after the daemon died between what it did and its answer: the id of the event
// that tells of it follows from the key. Its repeat finds the event and is answered from it. The zero value is a request without a key.
type once struct {
	id    id.Event    // for the event to append; "" lets the log make one
	event event.Event // what an earlier copy of the request appended
	done  bool        // there is one
}

// once looks for what an earlier copy of the request has done. want is the type of the event, in the log of sid unless that is "".
func (s *Service) once(ctx context.Context, want event.Type, sid id.Session) (once, error) {
	who := actor.From(ctx)
	if who.Request == "" {
		return once{}, nil
	}
	o := once{id: id.EventOf(who.Request)}
	e, err := s.cfg.Rows.Event(ctx, o.id)
	if isNotFound(err) {
		return o, nil
	}
	if err != nil {
		return once{}, err
	}
	if e.Type != want || sid != "" && e.SessionID != sid || s.cfg.Clock.Now().Sub(e.CreatedAt) > actor.RequestLife {
		return once{}, nil // the key has been used anew for something else
	}
	o.event, o.done = e, true
	return o, nil
}
