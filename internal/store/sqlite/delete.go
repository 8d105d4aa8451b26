package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

// purgeStep is how many events one transaction deletes, so that a long log does not hold up everybody's appends.
const purgeStep = 2000

// DeleteSession removes a session. Its name is free at once and its subscriptions end. If it has forks its log stays for
// them, and so do the checkpoints that they started from; both go with the last fork. It fails with session_not_found. After an error the
// session is there as before; what of its log cannot be removed yet is left to the next deletion or start.
func (s *Store) DeleteSession(ctx context.Context, sid id.Session) (store.Deletion, error) {
	var d store.Deletion
	err := s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		d = store.Deletion{}
		row, err := q.GetSession(ctx, sid)
		if errors.Is(err, sql.ErrNoRows) || err == nil && row.DeletedAt.Valid {
			return refuse(notFound(string(sid)))
		} else if err != nil {
			return err
		}
		return s.bury(ctx, q, row, &d)
	}, func() { s.hub.end(sid) })
	if err != nil {
		return d, err
	}
	// From here on the session is gone for everybody. Should the process die, the next one's sweep finishes this.
	purged, err := s.purge(context.WithoutCancel(ctx))
	if err != nil {
		s.log.Warn("cannot remove the log of a deleted session yet", "session", sid, "error", err)
	}
	d.Purged = append(d.Purged, purged...)
	d.Tombstone = true
	for _, p := range d.Purged {
		d.Tombstone = d.Tombstone && p != sid
	}
	return d, nil
}

// bury makes a tombstone of a session and lets go of what no fork needs.
func (s *Store) bury(ctx context.Context, q *db.Queries, row db.Session, d *store.Deletion) error {
	if err := q.BurySession(ctx, db.BurySessionParams{DeletedAt: sql.NullInt64{Int64: micros(s.clock.Now()), Valid: true}, ID: row.ID}); err != nil {
		return err
	}
	if err := q.DropLayerRefs(ctx, string(row.ID)); err != nil {
		return err
	}
	// Its own checkpoints, and those of buried ancestors that were kept for it.
	for at := row.ID; at != ""; {
		r, err := q.GetSession(ctx, at)
		if errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return err
		}
		if r.DeletedAt.Valid {
			if err := dropUnneeded(ctx, q, r.ID, d); err != nil {
				return err
			}
		}
		at = r.ParentID
	}
	return nil
}

// dropUnneeded marks those checkpoints of a buried session as deleted that no live fork started from.
func dropUnneeded(ctx context.Context, q *db.Queries, sid id.Session, d *store.Deletion) error {
	list, err := q.ListCheckpoints(ctx, sid)
	if err != nil {
		return err
	}
	for _, c := range list {
		forks, err := q.CheckpointNeeded(ctx, c.ID)
		if err != nil {
			return err
		}
		if forks > 0 {
			continue
		}
		if _, err := q.MarkCheckpointDeleted(ctx, db.MarkCheckpointDeletedParams{ID: c.ID, SessionID: sid}); err != nil {
			return err
		}
		if err := q.DropLayerRefs(ctx, string(c.ID)); err != nil {
			return err
		}
		d.Checkpoints = append(d.Checkpoints, c.ID)
	}
	return nil
}

// purge deletes the logs of buried sessions that nothing descends from, and returns them. Each may uncover its parent.
func (s *Store) purge(ctx context.Context) (purged []id.Session, err error) {
	for {
		list, err := s.read.Unreachable(ctx)
		if err != nil || len(list) == 0 {
			return purged, s.reading(err)
		}
		for _, sid := range list {
			if err := s.purgeOne(ctx, sid); err != nil {
				return purged, err
			}
			purged = append(purged, sid)
		}
	}
}

func (s *Store) purgeOne(ctx context.Context, sid id.Session) error {
	for more := true; more; {
		err := s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
			// From the end, so that whoever still reads sees a shorter log, not a hole.
			last, err := q.LastSeq(ctx, sid)
			if more = err == nil; more {
				return q.DeleteEventsFrom(ctx, db.DeleteEventsFromParams{SessionID: sid, Seq: last - purgeStep + 1})
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if err := q.DeleteCheckpointsOf(ctx, sid); err != nil {
				return err
			}
			return q.DeleteSession(ctx, sid)
		}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep finishes what a process that died has left, and forgets answers older than a day.
func (s *Store) sweep(ctx context.Context) error {
	if _, err := s.purge(ctx); err != nil {
		return err
	}
	_, err := s.ExpireIdempotent(ctx, s.clock.Now().Add(-24*time.Hour))
	return err
}
