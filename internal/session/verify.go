package session

import (
	"context"
	"encoding/json"
	"fmt"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// Report is what Verify found.
type Report struct {
	Session ID         `json:"session_id"`
	Events  int        `json:"events"` // that are good, from the first on
	Head    event.Head `json:"head"`   // of the good part
	// BadSeq is the first event that does not fit the chain; 0 if all do.
	BadSeq  event.Seq `json:"bad_seq,omitempty"`
	Problem string    `json:"problem,omitempty"` // "" if all is well
}

// OK reports whether everything fits.
func (r Report) OK() bool { return r.Problem == "" }

// Verify reads a session's log from the first event to the last: seqs without a gap, each hash over the event and the hash
// before, every event foldable, every range of the timeline there, and stored (a store's row) equal to the fold. An error
// means that it could not look; what it found wrong is in the report.
func Verify(ctx context.Context, log Reader, stored Summary) (Report, error) {
	r := Report{Session: stored.ID}
	var sum Summary
	lines := &lineage{id: stored.ID}
	limit := page
	for {
		events, err := log.Read(ctx, stored.ID, r.Head.Seq, limit)
		if err != nil && limit > 1 && errdefs.KindOf(err) == errdefs.Corrupt {
			limit = 1 // go on one by one, to find the one
			continue
		}
		if err != nil {
			if errdefs.KindOf(err) != errdefs.Corrupt {
				return r, err
			}
			r.BadSeq, r.Problem = r.Head.Seq+1, err.Error()
			return r, nil
		}
		for _, e := range events {
			if problem := verifyEvent(&sum, lines, r.Head, e); problem != "" {
				r.BadSeq, r.Problem = r.Head.Seq+1, problem
				return r, nil
			}
			r.Events, r.Head = r.Events+1, event.Head{Seq: e.Seq, Hash: e.Hash}
		}
		if len(events) < limit {
			break
		}
	}
	if r.Head.Seq < stored.HeadSeq {
		r.BadSeq, r.Problem = r.Head.Seq+1, fmt.Sprintf("the log ends at %d, but it had %d events", r.Head.Seq, stored.HeadSeq)
		return r, nil
	}
	if _, err := lines.at(ctx, log, r.Head.Seq); err != nil {
		r.Problem = fmt.Sprintf("the timeline is broken: %v", err)
		return r, nil
	}
	want, got := form(sum), form(stored)
	if want != got {
		r.Problem = fmt.Sprintf("the stored row is not what the log says: %s; the log says: %s", got, want)
	}
	return r, nil
}

func verifyEvent(sum *Summary, lines *lineage, head event.Head, e event.Event) string {
	if e.Seq != head.Seq+1 {
		return fmt.Sprintf("event %d is missing", head.Seq+1)
	}
	hash, err := event.Hash(head.Hash, e)
	if err != nil {
		return err.Error()
	}
	if hash != e.Hash {
		return fmt.Sprintf("event %d has the hash %s, but its content and the event before give %s", e.Seq, e.Hash, hash)
	}
	if *sum, err = FoldSummary(*sum, e); err != nil {
		return err.Error()
	}
	if err = lines.note(e); err != nil {
		return err.Error()
	}
	return ""
}

// form makes summaries comparable.
func form(s Summary) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
