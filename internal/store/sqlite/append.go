package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

// encoded is a draft whose data has been checked and written as JSON, which needs no lock and no transaction.
type encoded struct {
	event.Draft
	data      json.RawMessage
	canonical []byte
}

// Append implements event.Log.
func (s *Store) Append(ctx context.Context, a event.Append) ([]event.Event, error) {
	drafts, err := encode(a)
	if err != nil {
		return nil, err
	}
	var stored []event.Event
	err = s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		var err error
		stored, err = s.appendIn(ctx, q, a, drafts)
		return err
	}, func() { s.hub.wake(a.Session) })
	if err != nil {
		return nil, err
	}
	return stored, nil
}

func encode(a event.Append) ([]encoded, error) {
	if !id.Valid("sess", string(a.Session)) {
		return nil, errdefs.New(errdefs.Invalid, event.CodeInvalid, "%q is not a session id", a.Session)
	}
	if len(a.Events) == 0 {
		return nil, errdefs.New(errdefs.Invalid, event.CodeInvalid, "an append needs at least one event")
	}
	drafts := make([]encoded, len(a.Events))
	for i, d := range a.Events {
		if d.ID == "" {
			d.ID = id.NewEvent()
		} else if !id.Valid("evt", string(d.ID)) {
			return nil, errdefs.New(errdefs.Invalid, event.CodeInvalid, "%q is not an event id", d.ID)
		}
		data, canonical, err := event.Encode(d)
		if err != nil {
			return nil, err
		}
		drafts[i] = encoded{Draft: d, data: data, canonical: canonical}
	}
	return drafts, nil
}

// appendIn checks everything first and writes then, so that a refusal leaves the transaction as it was.
func (s *Store) appendIn(ctx context.Context, q *db.Queries, a event.Append, drafts []encoded) ([]event.Event, error) {
	row, err := q.GetSession(ctx, a.Session)
	isNew := errors.Is(err, sql.ErrNoRows)
	if err != nil && !isNew {
		return nil, err
	}
	if err := admit(a, row, isNew, drafts[0].Type); err != nil {
		return nil, refuse(err)
	}
	var sum session.Summary
	if !isNew {
		if sum, err = summaryOf(row); err != nil {
			return nil, refuse(err)
		}
	}
	events := make([]event.Event, len(drafts))
	changes := make([]store.Changes, len(drafts))
	now := event.Stamp(s.clock.Now())
	for i, d := range drafts {
		e := event.Event{
			ID: d.ID, Seq: sum.HeadSeq + 1, Type: d.Type, SessionID: a.Session, ActorID: d.ActorID, CreatedAt: now,
			CausationID: d.CausationID, Data: d.data,
		}
		e.Hash = event.HashCanonical(sum.HeadHash, e, d.canonical)
		if sum, err = session.FoldSummary(sum, e); err == nil {
			changes[i], err = store.Project(e)
		}
		if err != nil {
			return nil, refuse(errdefs.Wrap(err, errdefs.Invalid, event.CodeInvalid, "the event does not fit the log"))
		}
		events[i] = e
	}
	if err := checkCuts(ctx, q, sum, events); err != nil {
		return nil, err
	}
	if isNew {
		err = insertNew(ctx, q, sum)
	} else {
		err = q.UpdateSession(ctx, updateParams(sum))
	}
	if err != nil {
		return nil, err
	}
	for i, e := range events {
		if err := q.InsertEvent(ctx, eventParams(e)); err != nil {
			return nil, err
		}
		if err := apply(ctx, q, e.SessionID, changes[i]); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// admit refuses an append that names the wrong session, lease or head.
func admit(a event.Append, row db.Session, isNew bool, first event.Type) error {
	switch {
	case isNew && first != event.SessionCreated, !isNew && row.DeletedAt.Valid:
		return notFound(string(a.Session))
	case a.Lease != event.Generation(row.LeaseGeneration): // 0 for a new session
		return errdefs.New(errdefs.Conflict, event.CodeStaleLease, "the lease of session %s has generation %d, not %d", a.Session, row.LeaseGeneration, a.Lease).
			WithHint("somebody else drives this session now")
	case a.Expected != event.AnySeq && a.Expected != event.Seq(row.HeadSeq):
		return errdefs.New(errdefs.Conflict, event.CodeSeqConflict, "the log of session %s ends at %d, not at %d", a.Session, row.HeadSeq, a.Expected).
			WithHint("read what came since, then try again")
	case !isNew && first == event.SessionCreated:
		return errdefs.New(errdefs.Conflict, event.CodeSeqConflict, "session %s exists already", a.Session)
	}
	return nil
}

// insertNew inserts the row of a new session, unless its name is taken.
func insertNew(ctx context.Context, q *db.Queries, sum session.Summary) error {
	switch _, err := q.GetSessionByName(ctx, sum.Name); {
	case err == nil:
		return refuse(errdefs.New(errdefs.Conflict, event.CodeNameTaken, "a session named %q exists already", sum.Name).
			WithHint("choose another name, or delete that session with perdure rm"))
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	return q.InsertSession(ctx, insertParams(sum))
}

// checkCuts refuses events whose cut is not in the log of the session or of an ancestor, so that no timeline breaks.
func checkCuts(ctx context.Context, q *db.Queries, sum session.Summary, events []event.Event) error {
	for _, e := range events {
		var cut session.Position
		switch e.Type {
		case event.SessionCreated:
			if sum.Fork == nil {
				continue
			}
			cut = session.Position{Session: sum.Fork.ParentID, Seq: sum.Fork.CutSeq}
		case event.SessionImported:
			d, err := event.DecodeData[event.SessionImportedData](e)
			if err != nil {
				return refuse(err)
			}
			cut = session.Position{Session: d.CutSession, Seq: d.CutSeq}
		case event.SessionRolledBack:
			d, err := event.DecodeData[event.SessionRolledBackData](e)
			if err != nil {
				return refuse(err)
			}
			cut = session.Position{Session: d.CutSession, Seq: d.CutSeq}
		default:
			continue
		}
		if err := checkCut(ctx, q, sum, e, cut); err != nil {
			return err
		}
	}
	return nil
}

func checkCut(ctx context.Context, q *db.Queries, sum session.Summary, e event.Event, cut session.Position) error {
	bad := refuse(errdefs.New(errdefs.Invalid, event.CodeInvalid, "%s names a cut at %d of %q, which is not in the past of the session", e.Type, cut.Seq, cut.Session))
	if cut.Session == e.SessionID {
		if e.Type == event.SessionCreated || cut.Seq == 0 || cut.Seq >= e.Seq {
			return bad
		}
		return nil
	}
	for fork := sum.Fork; fork != nil; {
		row, err := q.GetSession(ctx, fork.ParentID)
		if errors.Is(err, sql.ErrNoRows) {
			return refuse(notFound(string(fork.ParentID)))
		} else if err != nil {
			return err
		}
		if row.ID == cut.Session {
			if cut.Seq == 0 || cut.Seq > event.Seq(row.HeadSeq) {
				return bad
			}
			if e.Type == event.SessionCreated && row.DeletedAt.Valid {
				return checkBuried(ctx, q, sum.Fork.CheckpointID)
			}
			return nil
		}
		parent, err := summaryOf(row)
		if err != nil {
			return refuse(err)
		}
		fork = parent.Fork
	}
	return bad
}

// checkBuried refuses a fork of a session that was deleted, unless its checkpoint is one that another fork started from: as long as that
// lives, the log that the new fork needs does too.
func checkBuried(ctx context.Context, q *db.Queries, cid id.Checkpoint) error {
	row, err := q.GetCheckpoint(ctx, cid)
	if errors.Is(err, sql.ErrNoRows) || err == nil && row.Deleted != 0 {
		return refuse(noCheckpoint(string(cid)))
	}
	return err
}

// apply writes what an event changes beside the session's row.
func apply(ctx context.Context, q *db.Queries, sid id.Session, c store.Changes) error {
	if c.Insert != nil {
		if err := insertCheckpoint(ctx, q, *c.Insert); err != nil {
			return err
		}
	}
	if c.State != "" {
		if _, err := q.SetCheckpointState(ctx, db.SetCheckpointStateParams{
			State: c.State, FailCode: c.FailCode, FailMessage: c.FailMessage, ID: c.Checkpoint, SessionID: sid,
		}); err != nil {
			return err
		}
	}
	if c.Delete {
		if _, err := q.MarkCheckpointDeleted(ctx, db.MarkCheckpointDeletedParams{ID: c.Checkpoint, SessionID: sid}); err != nil {
			return err
		}
	}
	if c.Delete || c.State == session.CheckpointFailed {
		if err := q.DropLayerRefs(ctx, string(c.Checkpoint)); err != nil {
			return err
		}
	}
	if c.Layers != nil {
		return setLayers(ctx, q, string(sid), *c.Layers)
	}
	if c.LayersOf != "" {
		if err := q.DropLayerRefs(ctx, string(sid)); err != nil {
			return err
		}
		return q.CopyLayerRefs(ctx, db.CopyLayerRefsParams{Target: string(sid), Source: string(c.LayersOf)})
	}
	return nil
}

func insertCheckpoint(ctx context.Context, q *db.Queries, c store.Checkpoint) error {
	params, err := checkpointParams(c)
	if err != nil {
		return err
	}
	if err := q.InsertCheckpoint(ctx, params); err != nil {
		return err
	}
	return setLayers(ctx, q, string(c.ID), c.Layers)
}

func setLayers(ctx context.Context, q *db.Queries, holder string, layers []id.Layer) error {
	if err := q.DropLayerRefs(ctx, holder); err != nil {
		return err
	}
	for _, l := range layers {
		if err := q.AddLayerRef(ctx, db.AddLayerRefParams{HolderID: holder, LayerID: l}); err != nil {
			return err
		}
	}
	return nil
}

// Acquire implements event.Log.
func (s *Store) Acquire(ctx context.Context, sid id.Session, owner id.Lease) (event.Generation, error) {
	if owner == "" {
		return 0, errdefs.New(errdefs.Invalid, event.CodeInvalid, "a lease needs an owner")
	}
	var gen int64
	err := s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		row, err := q.GetSession(ctx, sid)
		if errors.Is(err, sql.ErrNoRows) || err == nil && row.DeletedAt.Valid {
			return refuse(notFound(string(sid)))
		} else if err != nil {
			return err
		}
		gen = row.LeaseGeneration
		if row.LeaseOwner == owner {
			return nil
		}
		gen++
		return q.SetLease(ctx, db.SetLeaseParams{LeaseOwner: owner, LeaseGeneration: gen, ID: sid})
	}, nil)
	return event.Generation(gen), err
}
