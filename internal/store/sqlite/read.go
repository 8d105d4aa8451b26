package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

// readMax is the most events that one Read returns, and how many a subscription reads at a time.
const (
	readMax  = 10_000
	readPage = 256
)

// reading translates an error of a read, which after Close comes from closed connections.
func (s *Store) reading(err error) error {
	if err != nil && s.hub.isClosed() {
		return closed()
	}
	return translate(err)
}

// Read implements event.Log. The log of a deleted session can be read while a fork needs it. A limit above 10,000 counts as
// 10,000.
func (s *Store) Read(ctx context.Context, sid id.Session, after event.Seq, limit int) ([]event.Event, error) {
	if limit < 1 {
		return nil, errdefs.New(errdefs.Invalid, "invalid_limit", "a limit of %d events makes no sense", limit)
	}
	if after > 1<<62 {
		return nil, unknownCursor(sid, after)
	}
	rows, err := s.read.ReadEvents(ctx, db.ReadEventsParams{SessionID: sid, After: int64(after), Max: int64(min(limit, readMax))})
	if err != nil {
		return nil, s.reading(err)
	}
	events := make([]event.Event, len(rows))
	for i, r := range rows {
		events[i] = eventOf(r)
		if events[i].Seq != after+event.Seq(i)+1 {
			return nil, corrupt(errdefs.New(errdefs.Corrupt, event.CodeLogCorrupt, "event %d of session %s is missing", after+event.Seq(i)+1, sid))
		}
	}
	if len(rows) == 0 {
		// Nothing there, or no such session? Only then it costs a second query.
		if _, err := s.read.GetSession(ctx, sid); errors.Is(err, sql.ErrNoRows) {
			return nil, notFound(string(sid))
		} else if err != nil {
			return nil, s.reading(err)
		}
	}
	return events, nil
}

// Event returns an event by its id, wherever it is. Error: event_not_found.
func (s *Store) Event(ctx context.Context, e id.Event) (event.Event, error) {
	row, err := s.read.GetEvent(ctx, e)
	if errors.Is(err, sql.ErrNoRows) {
		return event.Event{}, errdefs.New(errdefs.NotFound, store.CodeEventNotFound, "there is no event %s", e)
	}
	if err != nil {
		return event.Event{}, s.reading(err)
	}
	return eventOf(row), nil
}

// Head implements event.Log.
func (s *Store) Head(ctx context.Context, sid id.Session) (event.Head, error) {
	row, err := s.read.GetHead(ctx, sid)
	if errors.Is(err, sql.ErrNoRows) {
		return event.Head{}, notFound(string(sid))
	}
	return event.Head{Seq: event.Seq(row.HeadSeq), Hash: row.HeadHash}, s.reading(err)
}

// Subscribe implements event.Log. It ends without an error when ctx ends or the session is deleted, and with store_closed
// when the store closes.
func (s *Store) Subscribe(ctx context.Context, sid id.Session, after event.Seq) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		// Listen first, read then: whatever is committed after the read rings.
		ear := s.hub.listen(sid)
		if ear == nil {
			yield(event.Event{}, closed())
			return
		}
		defer s.hub.unlisten(sid, ear)
		head, err := s.Head(ctx, sid)
		if err == nil && after > head.Seq {
			err = unknownCursor(sid, after)
		}
		for err == nil {
			var more bool
			if after, more, err = s.drain(ctx, sid, after, yield); !more {
				break
			}
			select {
			case <-ear.rung:
			case <-ctx.Done():
				return
			case <-ear.gone:
				if s.hub.isClosed() {
					err = closed()
					break
				}
				return
			}
		}
		if err != nil && ctx.Err() == nil {
			yield(event.Event{}, err)
		}
	}
}

// drain yields what is stored after the cursor and returns the new one; more is false when the subscription is over.
func (s *Store) drain(ctx context.Context, sid id.Session, after event.Seq, yield func(event.Event, error) bool) (_ event.Seq, more bool, err error) {
	for {
		events, err := s.Read(ctx, sid, after, readPage)
		if errdefs.CodeOf(err) == event.CodeSessionNotFound {
			return after, false, nil // deleted meanwhile
		} else if err != nil {
			return after, false, err
		}
		for _, e := range events {
			if !yield(e, nil) {
				return after, false, nil
			}
			after = e.Seq
		}
		if len(events) < readPage {
			return after, true, nil
		}
	}
}

func unknownCursor(sid id.Session, after event.Seq) error {
	return errdefs.New(errdefs.Invalid, event.CodeUnknownCursor, "the log of session %s has no event %d yet", sid, after).
		WithHint("start from the last event that you have seen of this session")
}
