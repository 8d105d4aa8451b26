package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// CPU is what a memory image wants of the processor that it is restored on, since programs in it have asked once what there is. A sandbox
// that was restored goes on with what its image wants, also where there is more.
type CPU struct {
	Features  []string `json:"features"`             // in the engine's words, sorted
	CacheLine int      `json:"cache_line,omitempty"` // bytes; must be the same, 0: not known
}

// namedFeatures is how many missing features are named to people.
const namedFeatures = 6

// Lacks says what c does not have of what is wanted, for people; "" if it has all.
func (c CPU) Lacks(wanted CPU) string {
	var missing []string
	for _, f := range wanted.Features {
		if !slices.Contains(c.Features, f) {
			missing = append(missing, f)
		}
	}
	switch n := len(missing); {
	case n > namedFeatures:
		return fmt.Sprintf("this processor lacks %s and %d more features", strings.Join(missing[:namedFeatures], ", "), n-namedFeatures)
	case n > 0:
		return "this processor lacks " + strings.Join(missing, ", ")
	case wanted.CacheLine != 0 && c.CacheLine != 0 && wanted.CacheLine != c.CacheLine:
		return fmt.Sprintf("this processor has cache lines of %d bytes, not of %d", c.CacheLine, wanted.CacheLine)
	}
	return ""
}
