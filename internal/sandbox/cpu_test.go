package sandbox_test

import (
	"strings"
	"testing"

	"perdure.dev/perdure/internal/sandbox"
)

func TestCPULacks(t *testing.T) {
	here := sandbox.CPU{Features: []string{"a", "b", "c"}, CacheLine: 64}
	for name, c := range map[string]struct {
		wanted sandbox.CPU
		want   string // what it says has this in it; "": nothing is missing
	}{
		"the same":           {here, ""},
		"less":               {sandbox.CPU{Features: []string{"b"}, CacheLine: 64}, ""},
		"nothing is known":   {sandbox.CPU{}, ""},
		"one more":           {sandbox.CPU{Features: []string{"a", "d"}, CacheLine: 64}, "lacks d"},
		"many more":          {sandbox.CPU{Features: strings.Fields("d e f g h i j k")}, "and 2 more"},
		"another cache line": {sandbox.CPU{Features: []string{"a"}, CacheLine: 128}, "64 bytes, not of 128"},
	} {
		got := here.Lacks(c.wanted)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
