package env_test

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"perdure.dev/perdure/internal/cli/env"
)

// TestFlagsOfGivesThemAgain parses flags, and then what FlagsOf makes of them: the same comes out.
func TestFlagsOfGivesThemAgain(t *testing.T) {
	type flags struct {
		size     env.Bytes
		idle     env.Threshold
		auto     env.CheckpointFlags
		level    string
		yes      bool
		names    []string
		patterns []string
	}
	set := func() (*pflag.FlagSet, *flags) {
		f, fs := &flags{size: 8 << 30, yes: true}, pflag.NewFlagSet("serve", pflag.ContinueOnError)
		fs.Var(&f.size, "image-cache", "")
		fs.Var(env.ThresholdVar(&f.idle), "idle-suspend", "")
		f.auto.Add(fs)
		fs.StringVar(&f.level, "log-level", "info", "")
		fs.BoolVar(&f.yes, "encrypt-snapshots", true, "")
		fs.StringSliceVar(&f.names, "host-name", nil, "")
		fs.StringArrayVar(&f.patterns, "pattern", nil, "")
		return fs, f
	}
	for _, args := range [][]string{
		nil,
		{"--image-cache", "0", "--idle-suspend", "never"},
		{"--image-cache=2G", "--idle-suspend=default", "--log-level", "debug", "--encrypt-snapshots=false"},
		{"--checkpoint-turns", "off", "--checkpoint-risky", "default", "--keep-last", "none", "--keep-hourly", "default", "--keep-daily", "7", "--checkpoint-every", "90m"},
		{"--risky-call", `run=a,b \brm\b`, "--risky-call", "*=x y", "--pattern", "a,b", "--pattern", "c"},
	} {
		fs, first := set()
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		again := env.FlagsOf(fs)
		next, second := set()
		if err := next.Parse(again); err != nil {
			t.Errorf("%q is given again as %q: %v", args, again, err)
			continue
		}
		if first.size != second.size || first.idle != second.idle || first.level != second.level || first.yes != second.yes || !slices.Equal(first.patterns, second.patterns) {
			t.Errorf("%q is given again as %q", args, again)
		}
		if a, b := env.FlagsOf(next), again; !slices.Equal(a, b) {
			t.Errorf("%q, and the third time %q", b, a)
		}
	}
	fs, _ := set()
	if err := fs.Parse([]string{"--host-name", "a", "--log-level", "warn"}); err != nil {
		t.Fatal(err)
	}
	if got := env.FlagsOf(fs, "host-name"); !slices.Equal(got, []string{"--log-level=warn"}) {
		t.Errorf("%q", got)
	}
}
