package session

import (
	"context"
	"sort"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// lineage knows where a session's timeline jumps: at its birth, if it is a fork, at each rollback, and where it came from elsewhere. It learns from the
// log up to where it is asked about, so it costs memory for the jumps only.
type lineage struct {
	id     ID
	read   event.Seq // up to here the log has been looked at
	fork   *Position
	parent *lineage // of fork; nil until needed
	jumps  []jump   // in the order of the log
}

// jump says that from the event at Seq on, the timeline continues the one at Cut.
type jump struct {
	seq event.Seq
	cut Position
}

// note learns from e, the event after those seen so far.
func (l *lineage) note(e event.Event) error {
	cut, moves, err := cutOf(e)
	if err != nil {
		return err
	}
	l.read = e.Seq
	switch {
	case !moves:
	case e.Type == event.SessionCreated:
		l.fork = &cut
	default:
		l.jumps = append(l.jumps, jump{seq: e.Seq, cut: cut})
	}
	return nil
}

// ensure reads the log up to seq.
func (l *lineage) ensure(ctx context.Context, log Reader, seq event.Seq) error {
	if l.read >= seq {
		return nil
	}
	for e, err := range readRange(ctx, log, Range{Session: l.id, From: l.read + 1, To: seq}) {
		if err != nil {
			return err
		}
		if err := l.note(e); err != nil {
			return err
		}
	}
	return nil
}

// at returns the timeline that the session had when its log ended at seq.
func (l *lineage) at(ctx context.Context, log Reader, seq event.Seq) (Timeline, error) {
	if err := l.ensure(ctx, log, seq); err != nil {
		return nil, err
	}
	n := sort.Search(len(l.jumps), func(i int) bool { return l.jumps[i].seq > seq })
	if n > 0 {
		j := l.jumps[n-1]
		before, err := l.resolve(ctx, log, j.cut)
		if err != nil {
			return nil, err
		}
		return before.extend(Range{Session: l.id, From: j.seq, To: seq}), nil
	}
	var before Timeline
	if l.fork != nil {
		var err error
		if before, err = l.resolve(ctx, log, *l.fork); err != nil {
			return nil, err
		}
	}
	return before.extend(Range{Session: l.id, From: 1, To: seq}), nil
}

// resolve returns the timeline at p, which is in this log or an ancestor's.
func (l *lineage) resolve(ctx context.Context, log Reader, p Position) (Timeline, error) {
	for a := l; ; a = a.parent {
		if a.id == p.Session {
			return a.at(ctx, log, p.Seq)
		}
		if err := a.ensure(ctx, log, 1); err != nil {
			return nil, err
		}
		if a.fork == nil {
			return nil, errdefs.New(errdefs.Corrupt, event.CodeLogCorrupt, "the timeline of session %s goes through %s, which is not an ancestor of it", l.id, p.Session)
		}
		if a.parent == nil {
			a.parent = &lineage{id: a.fork.Session}
		}
	}
}
