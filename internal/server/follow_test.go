package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// earlyExecs has one command whose readers end, or break, after each piece, as they do when its workspace goes to sleep.
type earlyExecs struct {
	Execs
	pieces []string // the output, one piece for each opening
	opened int
	breaks error // nil: readers end with io.EOF
}

func (e *earlyExecs) text() string { return strings.Join(e.pieces, "") }

func (e *earlyExecs) GetExec(context.Context, string, id.Exec) (api.Exec, error) {
	st := api.Exec{State: api.ExecRunning, StdoutSize: int64(len(e.text()))}
	if e.opened >= len(e.pieces)-1 { // it ends while its last piece is still to be read
		st.State = api.ExecExited
	}
	return st, nil
}

func (e *earlyExecs) ExecOutput(_ context.Context, _ string, _ id.Exec, _ string, offset int64, _ bool) (io.ReadCloser, error) {
	if e.opened >= len(e.pieces) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if want := int64(len(strings.Join(e.pieces[:e.opened], ""))); offset != want {
		return nil, errdefs.New(errdefs.Internal, "wrong_offset", "opened at %d, want %d", offset, want)
	}
	e.opened++
	var end io.Reader = strings.NewReader("")
	if e.breaks != nil && e.opened < len(e.pieces)-1 {
		end = brokenReader{e.breaks}
	}
	return io.NopCloser(io.MultiReader(strings.NewReader(e.pieces[e.opened-1]), end)), nil
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

func TestFollowOutlivesItsReaders(t *testing.T) {
	for _, breaks := range []error{nil, errors.New("the sandbox is gone")} {
		e := &earlyExecs{pieces: []string{"before, ", "asleep, ", "after, ", "the end"}, breaks: breaks}
		s := &Server{cfg: Config{Backend: Backend{Execs: e}}}
		r := s.follow(t.Context(), "s", "x", "stdout", 0)
		got, err := io.ReadAll(r)
		if err != nil || string(got) != e.text() {
			t.Errorf("readers that end with %v: %q, %v; want %q", breaks, got, err, e.text())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopping)
	s := &Server{cfg: Config{Backend: Backend{Execs: &earlyExecs{pieces: []string{"", "", ""}}}}}
	r := s.follow(ctx, "s", "x", "stdout", 0)
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errStopping) {
		t.Errorf("Read = %v, want %v", err, errStopping)
	}
}
