package checkpoint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

func TestRetention(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse("2006-01-02 15:04", "2030-03-"+s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	// name kind day hour:minute
	list := func(lines ...string) (out []checkpoint.Aged) {
		for _, l := range lines {
			f := strings.SplitN(l, " ", 3)
			out = append(out, checkpoint.Aged{ID: id.Checkpoint(f[0]), Kind: event.CheckpointKind(f[1]), At: at(f[2])})
		}
		return out
	}
	day := list("a turn 01 10:05", "b turn 01 10:50", "c turn 01 11:10", "d suspend 01 11:20", "e turn 01 12:00", "f turn 02 09:00", "g turn 02 09:01")
	for _, c := range []struct {
		name string
		keep checkpoint.Retention
		list []checkpoint.Aged
		drop string
	}{
		{"nothing", checkpoint.Retention{}, nil, ""},
		{"none stay", checkpoint.Retention{}, day, "a b c d e f g"},
		{"the last of each kind", checkpoint.Retention{Last: 2}, day, "a b c e"},
		{"more than there are", checkpoint.Retention{Last: 100}, day, ""},
		{"hours", checkpoint.Retention{Hourly: 3}, day, "a b c f"},
		{"all hours", checkpoint.Retention{Hourly: 100}, day, "a c f"},
		{"days", checkpoint.Retention{Daily: 5}, day, "a b c d f"},
		{"what the last ones are counts for their hours too", checkpoint.Retention{Last: 1, Hourly: 2}, day, "a b c f"},
		{"any order", checkpoint.Retention{Last: 2}, []checkpoint.Aged{day[6], day[0], day[3], day[5], day[1], day[4], day[2]}, "a b c e"},
		{"the same moment", checkpoint.Retention{Last: 1}, list("x turn 01 10:00", "y turn 01 10:00"), "x"},
	} {
		var got []string
		for _, d := range c.keep.Drop(c.list) {
			got = append(got, string(d))
		}
		if strings.Join(got, " ") != c.drop {
			t.Errorf("%s: drops %v, want %q", c.name, got, c.drop)
		}
	}
}

// TestRetentionIsStable drops after each of many checkpoints what is to go, as a session does: what stays is what would stay had nothing been dropped
// before.
func TestRetentionIsStable(t *testing.T) {
	keep := checkpoint.Retention{Last: 3, Hourly: 5, Daily: 4}
	var all, have []checkpoint.Aged
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 600 {
		now = now.Add(time.Duration(7+i%91) * time.Minute)
		c := checkpoint.Aged{ID: id.Checkpoint(fmt.Sprintf("c%03d", i)), Kind: []event.CheckpointKind{event.KindTurn, event.KindRisky}[i%2], At: now}
		all, have = append(all, c), append(have, c)
		gone := keep.Drop(have)
		have = slices.DeleteFunc(have, func(c checkpoint.Aged) bool { return slices.Contains(gone, c.ID) })
		if want := len(all) - len(keep.Drop(all)); len(have) != want {
			t.Fatalf("after %d: %d are left, want %d", i+1, len(have), want)
		}
	}
	if len(have) < 6 || len(have) > 2*3+5+4 {
		t.Errorf("%d are left", len(have))
	}
}
