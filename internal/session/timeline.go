package session

import (
	"context"
	"iter"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// Reader reads logs. Every event.Log is one.
type Reader interface {
	// Read returns up to limit events after the cursor, in order; fewer mean that the end was reached.
	Read(ctx context.Context, session ID, after event.Seq, limit int) ([]event.Event, error)
}

// page is how many events are asked for at a time. Messages can be large, so it bounds memory more than it saves queries.
const page = 256

// Range is a run of events in one log, From and To included.
type Range struct {
	Session ID        `json:"session"`
	From    event.Seq `json:"from"`
	To      event.Seq `json:"to"`
}

// Timeline is what the model sees, as ranges of logs, oldest first.
type Timeline []Range

// Len returns the number of events on the timeline.
func (t Timeline) Len() int {
	n := 0
	for _, r := range t {
		n += int(r.To - r.From + 1)
	}
	return n
}

// End returns the place of the last event, or the zero Position.
func (t Timeline) End() Position {
	if len(t) == 0 {
		return Position{}
	}
	last := t[len(t)-1]
	return Position{Session: last.Session, Seq: last.To}
}

// Contains reports whether the event at p is on the timeline.
func (t Timeline) Contains(p Position) bool {
	for _, r := range t {
		if r.Session == p.Session && r.From <= p.Seq && p.Seq <= r.To {
			return true
		}
	}
	return false
}

// From returns the part of the timeline that starts with the event at p; all of it if p is not on it.
func (t Timeline) From(p Position) Timeline {
	for i, r := range t {
		if r.Session == p.Session && r.From <= p.Seq && p.Seq <= r.To {
			rest := append(Timeline(nil), t[i:]...)
			rest[0].From = p.Seq
			return rest
		}
	}
	return t
}

// After returns the part of the timeline behind the event at p; all of it if p is not on it.
func (t Timeline) After(p Position) Timeline {
	rest := t.From(p)
	if !t.Contains(p) {
		return rest
	}
	if rest[0].From++; rest[0].From > rest[0].To {
		rest = rest[1:]
	}
	return rest
}

// Common returns the part with which both timelines begin.
func (t Timeline) Common(o Timeline) Timeline {
	var out Timeline
	for i := 0; i < len(t) && i < len(o); i++ {
		if t[i].Session != o[i].Session || t[i].From != o[i].From {
			break
		}
		r := t[i]
		r.To = min(r.To, o[i].To)
		out = append(out, r)
		if t[i].To != o[i].To {
			break
		}
	}
	return out
}

// extend returns the timeline with a range behind it, joined to the last one where they touch.
func (t Timeline) extend(r Range) Timeline {
	if r.To < r.From {
		return t
	}
	out := append(Timeline(nil), t...)
	if n := len(out); n > 0 && out[n-1].Session == r.Session && out[n-1].To+1 == r.From {
		out[n-1].To = r.To
		return out
	}
	return append(out, r)
}

// Events yields the timeline's events in order, reading them page by page.
func (t Timeline) Events(ctx context.Context, log Reader) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for _, r := range t {
			for e, err := range readRange(ctx, log, r) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// readRange yields the events of one range. A log that ends before the range does is corrupt.
func readRange(ctx context.Context, log Reader, r Range) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for after := r.From - 1; after < r.To; {
			want := int(min(page, r.To-after))
			events, err := log.Read(ctx, r.Session, after, want)
			if err == nil && len(events) == 0 {
				err = errdefs.New(errdefs.Corrupt, event.CodeLogCorrupt, "the log of session %s ends at %d, but a timeline goes on to %d", r.Session, after, r.To)
			}
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			after = events[len(events)-1].Seq
		}
	}
}

// TimelineAt returns the timeline that session had when its log ended at seq.
func TimelineAt(ctx context.Context, log Reader, session ID, seq event.Seq) (Timeline, error) {
	return (&lineage{id: session}).at(ctx, log, seq)
}
