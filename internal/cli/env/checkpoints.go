package env

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"perdure.dev/perdure/api"
)

// CheckpointFlags say when checkpoints are taken without being asked for, and which of those stay.
type CheckpointFlags struct {
	turns, risky        choice
	calls               []string
	every               Threshold
	last, hourly, daily count
}

// Add adds the flags. What they say when they are not given is in the text.
func (f *CheckpointFlags) Add(fs *pflag.FlagSet) {
	fs.Var(&f.turns, "checkpoint-turns", "take a checkpoint at the end of each turn in which the workspace may have changed")
	fs.Var(&f.risky, "checkpoint-risky", "take one before the agent's calls that may destroy something")
	fs.StringArrayVar(&f.calls, "risky-call", nil, "a pattern of such calls, TOOL=EXPRESSION, in place of the usual ones; may be repeated; default goes back to those")
	fs.Var(ThresholdVar(&f.every), "checkpoint-every", "take one every so often while the workspace runs and may have changed; never switches it off")
	fs.Var(&f.last, "keep-last", "of the checkpoints of each kind that were not asked for, keep so many")
	fs.Var(&f.hourly, "keep-hourly", "and one for each of so many hours")
	fs.Var(&f.daily, "keep-daily", "and one for each of so many days")
}

// Given returns what was given, nil if that is nothing.
func (f *CheckpointFlags) Given() *api.ConfigureCheckpoints {
	out := api.ConfigureCheckpoints{
		Turns: f.turns.given(), Risky: f.risky.given(), EveryMS: f.every.Given(), KeepLast: f.last.given(), KeepHourly: f.hourly.given(), KeepDaily: f.daily.given(),
	}
	if f.calls != nil {
		calls := []string{}
		for _, c := range f.calls {
			if c != "default" {
				calls = append(calls, c)
			}
		}
		out.RiskyCalls = &calls
	}
	if out == (api.ConfigureCheckpoints{}) {
		return nil
	}
	return &out
}

// Checkpoints is the same for a session that is made.
func (f *CheckpointFlags) Checkpoints() api.Checkpoints {
	return api.Checkpoints{
		Turns: f.turns.value, Risky: f.risky.value, RiskyCalls: f.calls, EveryMS: f.every.MS,
		KeepLast: f.last.n, KeepHourly: f.hourly.n, KeepDaily: f.daily.n,
	}
}

// CheckpointText says what a session says about its checkpoints.
func CheckpointText(c api.Checkpoints) []string {
	var parts []string
	for _, s := range []struct{ name, value string }{{"after turns", c.Turns}, {"before risky calls", c.Risky}} {
		if s.value != "" {
			parts = append(parts, s.name+" "+s.value)
		}
	}
	switch {
	case c.EveryMS < 0:
		parts = append(parts, "by the clock never")
	case c.EveryMS > 0:
		parts = append(parts, "every "+ShortTime(time.Duration(c.EveryMS)*time.Millisecond))
	}
	if len(c.RiskyCalls) > 0 {
		parts = append(parts, fmt.Sprintf("%d patterns of risky calls", len(c.RiskyCalls)))
	}
	for _, k := range []struct {
		name string
		n    int
	}{{"of each kind", c.KeepLast}, {"hourly", c.KeepHourly}, {"daily", c.KeepDaily}} {
		if k.n != 0 {
			parts = append(parts, fmt.Sprintf("%d kept %s", max(k.n, 0), k.name))
		}
	}
	return parts
}

// choice is a flag that is on, off, or as the daemon has it.
type choice struct {
	value string
	set   bool
}

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	switch s {
	case "on", "off":
		*c = choice{s, true}
	case "default":
		*c = choice{"", true}
	default:
		return fmt.Errorf("%q is not on, off or default", s)
	}
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string {
	if c.set && c.value == "" {
		return "default"
	}
	return c.value
}

// Type implements pflag.Value.
func (c *choice) Type() string { return "on|off" }

func (c *choice) given() *string {
	if !c.set {
		return nil
	}
	return &c.value
}

// count is a flag that is a number, none, or as the daemon has it.
type count struct {
	n   int // -1: none
	set bool
}

// Set implements pflag.Value.
func (c *count) Set(s string) error {
	switch s {
	case "none", "0":
		*c = count{-1, true}
		return nil
	case "default":
		*c = count{0, true}
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a number, and neither none nor default", s)
	}
	*c = count{n, true}
	return nil
}

// String implements pflag.Value.
func (c *count) String() string {
	switch {
	case c.n < 0:
		return "none"
	case c.n == 0 && c.set:
		return "default"
	case c.n == 0:
		return ""
	}
	return strconv.Itoa(c.n)
}

// Type implements pflag.Value.
func (c *count) Type() string { return "number" }

func (c *count) given() *int {
	if !c.set {
		return nil
	}
	return &c.n
}
