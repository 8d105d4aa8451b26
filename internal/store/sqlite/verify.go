package sqlite

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// Verify checks a session's log (see session.Verify) and that its rows are what the log says: its own, its checkpoints and
// their layers. It reads while others append, so it checks up to the head that it finds first.
func (s *Store) Verify(ctx context.Context, idOrName string) (session.Report, error) {
	row, err := s.Session(ctx, idOrName)
	if err != nil {
		return session.Report{}, err
	}
	r, err := session.Verify(ctx, bounded{s, row.ID, row.HeadSeq}, row.Summary)
	if err != nil || !r.OK() {
		return r, err
	}
	r.Problem, err = s.verifyRows(ctx, row)
	return r, err
}

// bounded shows one log up to a head.
type bounded struct {
	*Store
	session id.Session
	head    event.Seq
}

func (b bounded) Read(ctx context.Context, sid id.Session, after event.Seq, limit int) ([]event.Event, error) {
	events, err := b.Store.Read(ctx, sid, after, limit)
	for sid == b.session && len(events) > 0 && events[len(events)-1].Seq > b.head {
		events = events[:len(events)-1]
	}
	return events, err
}

// verifyRows folds the checkpoints anew and compares.
func (s *Store) verifyRows(ctx context.Context, row store.Session) (problem string, err error) {
	want := map[id.Checkpoint]store.Checkpoint{}
	for after := event.Seq(0); after < row.HeadSeq; {
		events, err := s.Read(ctx, row.ID, after, readPage)
		if err != nil {
			return "", err
		}
		for _, e := range events {
			c, err := store.Project(e)
			if err != nil {
				return err.Error(), nil
			}
			if c.Insert != nil {
				want[c.Insert.ID] = *c.Insert
			}
			if w, ok := want[c.Checkpoint]; ok {
				w.Deleted = w.Deleted || c.Delete
				if c.State != "" {
					w.State, w.FailCode, w.FailMessage = c.State, c.FailCode, c.FailMessage
				}
				want[c.Checkpoint] = w
			}
		}
		after += event.Seq(len(events))
	}
	rows, err := s.read.ListAllCheckpoints(ctx, row.ID)
	if err != nil {
		return "", s.reading(err)
	}
	list, err := checkpointsOf(rows)
	if err != nil {
		return "", err
	}
	for _, got := range list {
		w, ok := want[got.ID]
		if !ok || !reflect.DeepEqual(w, got) {
			return fmt.Sprintf("the stored row of checkpoint %s is not what the log says: %+v; the log says: %+v", got.ID, got, w), nil
		}
		delete(want, got.ID)
		if problem, err := s.verifyLayers(ctx, got); problem != "" || err != nil {
			return problem, err
		}
	}
	for cid := range want {
		return fmt.Sprintf("checkpoint %s is in the log but has no row", cid), nil
	}
	return "", nil
}

// verifyLayers checks that a checkpoint that can be restored holds its layers, and no other does.
func (s *Store) verifyLayers(ctx context.Context, c store.Checkpoint) (problem string, err error) {
	held, err := s.read.LayersOf(ctx, string(c.ID))
	if err != nil {
		return "", s.reading(err)
	}
	want := slices.Compact(slices.Sorted(slices.Values(c.Layers)))
	if c.Deleted || c.State == session.CheckpointFailed {
		want = nil
	}
	if !slices.Equal(held, want) {
		return fmt.Sprintf("checkpoint %s holds the layers %v; the log says %v", c.ID, held, want), nil
	}
	return "", nil
}
