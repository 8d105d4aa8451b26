package session

import (
	"context"
	"errors"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// Tracker holds the state of a live session and follows its log. It is for one goroutine.
type Tracker struct {
	log     Reader
	lineage *lineage
	state   State
}

// Load reads a session's log from its first event to its end, and those of its ancestors as far as its timeline goes
// through them. It fails with session_not_found and log_corrupt.
func Load(ctx context.Context, log Reader, session ID) (*Tracker, error) {
	t := &Tracker{log: log, lineage: &lineage{id: session}}
	moved := false // the view is behind and is folded at the end, once, however many rollbacks there were
	for {
		events, err := log.Read(ctx, session, t.state.HeadSeq, page)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if err := t.fold(e, &moved); err != nil {
				return nil, err
			}
		}
		if len(events) < page {
			break
		}
	}
	if t.state.HeadSeq == 0 {
		return nil, errdefs.New(errdefs.NotFound, event.CodeSessionNotFound, "no session %s", session)
	}
	if moved {
		if err := t.refold(ctx); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// fold takes e into everything but a view that has moved.
func (t *Tracker) fold(e event.Event, moved *bool) error {
	if err := t.lineage.note(e); err != nil {
		return err
	}
	if !*moved {
		next, err := Fold(t.state, e)
		if err == nil {
			t.state = next
			return nil
		}
		if !errors.Is(err, ErrTimelineMoved) {
			return err
		}
		*moved = true
	}
	var err error
	if t.state.Summary, err = FoldSummary(t.state.Summary, e); err != nil {
		return err
	}
	t.state.Facts, err = FoldFacts(t.state.Facts, e)
	return err
}

// refold folds the view from the whole timeline.
func (t *Tracker) refold(ctx context.Context) error {
	line, err := t.Timeline(ctx)
	if err != nil {
		return err
	}
	t.state.View, err = viewOf(ctx, t.log, line)
	return err
}

func viewOf(ctx context.Context, log Reader, line Timeline) (View, error) {
	var v View
	for e, err := range line.Events(ctx, log) {
		if err != nil {
			return v, err
		}
		if v, err = FoldView(v, e); err != nil {
			return v, err
		}
	}
	return v, nil
}

// State returns the state after the last event that Load, Apply or CatchUp took in. Its slices are not to be changed.
func (t *Tracker) State() State { return t.state }

// Timeline returns the timeline at that point.
func (t *Tracker) Timeline(ctx context.Context) (Timeline, error) {
	return t.lineage.at(ctx, t.log, t.state.HeadSeq)
}

// Apply takes in the events that follow, as Append returned them or a subscription yielded them. Events that it has already
// taken in are passed over. After an error the tracker is stale: load anew.
func (t *Tracker) Apply(ctx context.Context, events ...event.Event) error {
	moved := false
	for _, e := range events {
		if e.SessionID == t.state.ID && e.Seq <= t.state.HeadSeq {
			continue
		}
		if err := t.fold(e, &moved); err != nil {
			return err
		}
	}
	if moved {
		return t.refold(ctx)
	}
	return nil
}

// CatchUp takes in whatever the log holds beyond what the tracker has seen.
func (t *Tracker) CatchUp(ctx context.Context) error {
	for {
		events, err := t.log.Read(ctx, t.state.ID, t.state.HeadSeq, page)
		if err != nil {
			return err
		}
		if err := t.Apply(ctx, events...); err != nil {
			return err
		}
		if len(events) < page {
			return nil
		}
	}
}

// StateAt returns the state that the session had when its log ended at seq.
func StateAt(ctx context.Context, log Reader, session ID, seq event.Seq) (State, Timeline, error) {
	t, err := Load(ctx, upTo{log, session, seq}, session)
	if err != nil {
		return State{}, nil, err
	}
	line, err := t.Timeline(ctx)
	return t.state, line, err
}

// upTo is a reader that shows one log only up to a point.
type upTo struct {
	Reader
	session ID
	end     event.Seq
}

func (u upTo) Read(ctx context.Context, session ID, after event.Seq, limit int) ([]event.Event, error) {
	if session == u.session {
		if after >= u.end {
			return nil, nil
		}
		limit = int(min(event.Seq(limit), u.end-after))
	}
	return u.Reader.Read(ctx, session, after, limit)
}
