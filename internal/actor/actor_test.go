package actor

import "testing"

func TestRoleAllows(t *testing.T) {
	for _, c := range []struct {
		have, need Role
		want       bool
	}{
		{Admin, Admin, true}, {Admin, Viewer, true}, {Operator, Admin, false}, {Operator, Approver, true},
		{Viewer, Viewer, true}, {Viewer, Operator, false}, {"", Viewer, false}, {"root", Viewer, false}, {Admin, "", false},
	} {
		if got := c.have.Allows(c.need); got != c.want {
			t.Errorf("%q.Allows(%q) = %v, want %v", c.have, c.need, got, c.want)
		}
	}
}

func TestContextWithoutActorAllowsNothing(t *testing.T) {
	if From(t.Context()).Role.Allows(Viewer) {
		t.Error("a context without an actor allows reading")
	}
	if a := From(With(t.Context(), Local())); a != Local() {
		t.Errorf("From = %v", a)
	}
}
