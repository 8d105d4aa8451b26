package checkpoint

import (
	"cmp"
	"slices"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// Retention says which automatic checkpoints of a session stay.
type Retention struct {
	Last   int // of each kind, the newest
	Hourly int // hours that have one, the last first, of which the newest stays
	Daily  int // days, in UTC, likewise
}

// Aged is a checkpoint to be judged by its age.
type Aged struct {
	ID   id.Checkpoint
	Kind event.CheckpointKind
	At   time.Time
}

// Drop returns those of the automatic checkpoints that nothing keeps, the oldest first. Hours and days are those of the calendar, and those without a
// checkpoint do not count: a session that slept for a year keeps what it had.
func (r Retention) Drop(list []Aged) []id.Checkpoint {
	newest := slices.Clone(list)
	slices.SortStableFunc(newest, func(a, b Aged) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.ID, a.ID)) })
	count := map[event.CheckpointKind]int{}
	hours, days := map[time.Time]bool{}, map[time.Time]bool{}
	keeps := func(seen map[time.Time]bool, at time.Time, limit int) bool {
		if seen[at] || len(seen) >= limit {
			return false
		}
		seen[at] = true
		return true
	}
	var out []id.Checkpoint
	for _, c := range newest {
		count[c.Kind]++
		at := c.At.UTC()
		hour := keeps(hours, at.Truncate(time.Hour), r.Hourly) // each is counted, whatever else keeps it
		day := keeps(days, at.Truncate(24*time.Hour), r.Daily)
		if count[c.Kind] > r.Last && !hour && !day {
			out = append(out, c.ID)
		}
	}
	slices.Reverse(out)
	return out
}
