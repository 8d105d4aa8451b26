package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

// Sessions returns the sessions that f chooses, oldest first, and whether there are more behind them.
func (s *Store) Sessions(ctx context.Context, f store.Filter) (list []store.Session, more bool, err error) {
	limit := f.Limit
	if limit <= 0 || limit > store.MaxLimit {
		limit = store.MaxLimit
	}
	rows, err := s.read.ListSessions(ctx, db.ListSessionsParams{
		After: f.After, Prefix: f.NamePrefix, Status: string(f.Status), Parent: string(f.Parent), Max: int64(limit) + 1,
	})
	if err != nil {
		return nil, false, s.reading(err)
	}
	if more = len(rows) > limit; more {
		rows = rows[:limit]
	}
	list = make([]store.Session, len(rows))
	for i, r := range rows {
		if list[i], err = sessionOf(r); err != nil {
			return nil, false, err
		}
	}
	return list, more, nil
}

// Session returns a session by its id or its name. It fails with session_not_found.
func (s *Store) Session(ctx context.Context, idOrName string) (store.Session, error) {
	var row db.Session
	var err error
	if id.Valid("sess", idOrName) {
		row, err = s.read.GetSession(ctx, id.Session(idOrName))
	} else {
		row, err = s.read.GetSessionByName(ctx, idOrName)
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && row.DeletedAt.Valid {
		return store.Session{}, notFound(idOrName)
	} else if err != nil {
		return store.Session{}, s.reading(err)
	}
	return sessionOf(row)
}

// Checkpoint returns a checkpoint by its id, unless it was deleted. It fails with checkpoint_not_found.
func (s *Store) Checkpoint(ctx context.Context, cid id.Checkpoint) (store.Checkpoint, error) {
	row, err := s.read.GetCheckpoint(ctx, cid)
	if errors.Is(err, sql.ErrNoRows) || err == nil && row.Deleted != 0 {
		return store.Checkpoint{}, noCheckpoint(string(cid))
	} else if err != nil {
		return store.Checkpoint{}, s.reading(err)
	}
	return checkpointOf(row)
}

// Checkpoints returns a session's checkpoints that were not deleted, oldest first; failed ones are among them.
func (s *Store) Checkpoints(ctx context.Context, sid id.Session) ([]store.Checkpoint, error) {
	rows, err := s.read.ListCheckpoints(ctx, sid)
	if err != nil {
		return nil, s.reading(err)
	}
	return checkpointsOf(rows)
}

func checkpointsOf(rows []db.Checkpoint) ([]store.Checkpoint, error) {
	list := make([]store.Checkpoint, len(rows))
	for i, r := range rows {
		var err error
		if list[i], err = checkpointOf(r); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// CheckpointByRef returns the checkpoint that ref names for a session, of its own or of an ancestor's from before the fork: by id, or by message
// the newest that did not fail, of the nearest of them. It fails with checkpoint_not_found.
func (s *Store) CheckpointByRef(ctx context.Context, sid id.Session, ref string) (store.Checkpoint, error) {
	if id.Valid("ckpt", ref) {
		c, err := s.Checkpoint(ctx, id.Checkpoint(ref))
		if err != nil {
			return c, err
		}
		for at, until := sid, event.Seq(math.MaxInt64); at != ""; {
			if c.SessionID == at {
				if c.CutSeq > until {
					break
				}
				return c, nil
			}
			row, err := s.read.GetSession(ctx, at)
			if errors.Is(err, sql.ErrNoRows) {
				break
			} else if err != nil {
				return c, s.reading(err)
			}
			at, until = row.ParentID, event.Seq(row.ForkCutSeq)
		}
		return store.Checkpoint{}, noCheckpoint(ref)
	}
	for at, until := sid, event.Seq(math.MaxInt64); at != "" && ref != ""; {
		list, err := s.Checkpoints(ctx, at)
		if err != nil {
			return store.Checkpoint{}, err
		}
		for _, c := range slices.Backward(list) {
			if c.Message == ref && c.State != session.CheckpointFailed && c.CutSeq <= until {
				return c, nil
			}
		}
		row, err := s.read.GetSession(ctx, at)
		if errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return store.Checkpoint{}, s.reading(err)
		}
		at, until = row.ParentID, event.Seq(row.ForkCutSeq)
	}
	return store.Checkpoint{}, noCheckpoint(ref)
}

func noCheckpoint(ref string) error {
	return errdefs.New(errdefs.NotFound, store.CodeCheckpointNotFound, "no checkpoint %q", ref).
		WithHint("perdure checkpoints SESSION lists them")
}
