package service

import (
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

func TestSessionNames(t *testing.T) {
	for _, name := range []string{"a", "0", "invoices", "a.b_c-d", "rms", "ls-1", strings.Repeat("x", 63)} {
		if err := checkName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "A", "a b", "-a", ".a", "_", "é", "a/b", "a:b", "a@b", "a\n", strings.Repeat("x", 64), "ls", "rm", string(id.NewSession())} {
		if err := checkName(name); errdefs.CodeOf(err) != "invalid_name" || errdefs.HintOf(err) == "" {
			t.Errorf("%q: %v, hint %q", name, err, errdefs.HintOf(err))
		}
	}
}
