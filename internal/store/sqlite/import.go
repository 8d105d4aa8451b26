package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

// Import takes in logs from elsewhere as they are, ancestors first, and appends drafts to the last of them: all or nothing. Each log is checked as Verify
// does. Errors: session_exists for a session that is or was here, name_taken, log_corrupt for a log that does not verify.
func (s *Store) Import(ctx context.Context, logs []store.Log, drafts []event.Draft) ([]event.Event, error) {
	if len(logs) == 0 || len(drafts) == 0 {
		return nil, errdefs.New(errdefs.Invalid, event.CodeInvalid, "an import needs a log and what tells of it")
	}
	last := logs[len(logs)-1].Session
	checked, err := encode(event.Append{Session: last, Events: drafts})
	if err != nil {
		return nil, err
	}
	var added []event.Event
	err = s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		added = nil
		for i, l := range logs {
			_, err := q.GetSession(ctx, l.Session)
			if err == nil {
				return errdefs.New(errdefs.Conflict, "session_exists", "session %s is or was here already", l.Session)
			} else if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			in := importing{s: s, q: q, sum: session.Summary{ID: l.Session}, buried: l.Buried}
			for e, err := range l.Events {
				if err == nil {
					err = in.take(ctx, e)
				}
				if err != nil {
					return err
				}
			}
			if i == len(logs)-1 {
				if added, err = in.append(ctx, checked); err != nil {
					return err
				}
			}
			if err := in.end(ctx); err != nil {
				return err
			}
		}
		return nil
	}, func() { s.hub.wake(last) })
	if err != nil {
		return nil, err
	}
	return added, nil
}

// importing is one log on its way in.
type importing struct {
	s      *Store
	q      *db.Queries
	sum    session.Summary
	buried bool
}

// take stores an event with the hash that it must have.
func (in *importing) take(ctx context.Context, e event.Event) error {
	if e.SessionID != in.sum.ID {
		return errdefs.New(errdefs.Corrupt, event.CodeLogCorrupt, "event %d of the log of %s is one of %s", e.Seq, in.sum.ID, e.SessionID)
	}
	hash, err := event.Hash(in.sum.HeadHash, e)
	if err == nil && hash != e.Hash {
		err = errdefs.New(errdefs.Corrupt, event.CodeLogCorrupt, "event %d of session %s does not have the hash that it must have", e.Seq, e.SessionID)
	}
	if err != nil {
		return err
	}
	if _, err := in.q.GetEvent(ctx, e.ID); err == nil {
		return errdefs.New(errdefs.Conflict, "session_exists", "event %s is here already", e.ID)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return in.store(ctx, e)
}

// store folds an event and writes it. Of an ancestor only the log is kept: its checkpoints are not here.
func (in *importing) store(ctx context.Context, e event.Event) error {
	var err error
	if in.sum, err = session.FoldSummary(in.sum, e); err != nil {
		return err
	}
	changes, err := store.Project(e)
	if err != nil {
		return err
	}
	if err := in.q.InsertEvent(ctx, eventParams(e)); err != nil {
		return err
	}
	if in.buried {
		return nil
	}
	if changes.Insert != nil {
		if _, err := in.q.GetCheckpoint(ctx, changes.Insert.ID); err == nil {
			return errdefs.New(errdefs.Conflict, "session_exists", "checkpoint %s is here already", changes.Insert.ID)
		}
	}
	return apply(ctx, in.q, e.SessionID, changes)
}

// append adds what tells of the import.
func (in *importing) append(ctx context.Context, drafts []encoded) ([]event.Event, error) {
	var events []event.Event
	now := event.Stamp(in.s.clock.Now())
	for _, d := range drafts {
		e := event.Event{
			ID: d.ID, Seq: in.sum.HeadSeq + 1, Type: d.Type, SessionID: in.sum.ID, ActorID: d.ActorID, CreatedAt: now, CausationID: d.CausationID, Data: d.data,
		}
		e.Hash = event.HashCanonical(in.sum.HeadHash, e, d.canonical)
		if err := in.store(ctx, e); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, written(checkCuts(ctx, in.q, in.sum, events))
}

// end writes the session's row.
func (in *importing) end(ctx context.Context) error {
	if in.sum.HeadSeq == 0 {
		return errdefs.New(errdefs.Corrupt, event.CodeLogCorrupt, "the log of session %s is empty", in.sum.ID)
	}
	p := insertParams(in.sum)
	if in.buried {
		p.DeletedAt = sql.NullInt64{Int64: micros(in.s.clock.Now()), Valid: true}
		return in.q.InsertSession(ctx, p)
	}
	return written(insertNew(ctx, in.q, in.sum))
}

// written makes of a refusal an error with which the transaction does not go on: something has been written.
func written(err error) error {
	var r refusal
	if errors.As(err, &r) {
		return r.error
	}
	return err
}
