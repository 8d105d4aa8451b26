package cli_test

import (
	"strings"
	"testing"
)

func TestFollowingTellsOfRepeatedFailuresOnce(t *testing.T) {
	s := newShell(t)
	done := make(chan result)
	go func() { done <- s.run("run", "count the rows", "--name", "a") }()
	if _, err := s.d.Backend.WaitSession(waitFor(t, s.d.Backend, "a"), "a", []string{"running"}); err != nil {
		t.Fatal(err)
	}
	for _, retry := range []bool{true, true, true, false} {
		if _, err := s.d.Backend.Append("a", "model.failed", map[string]any{"code": "model_overloaded", "message": "too many", "retry": retry}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.d.Backend.Finish("a", "failed", "model_overloaded"); err != nil {
		t.Fatal(err)
	}
	r := <-done
	s.want(r, 1, "! model: too many (model_overloaded); trying again", "a stopped")
	if n := strings.Count(r.out, "! model"); n != 1 {
		t.Errorf("the failure is told %d times: %q", n, r.out)
	}
}
