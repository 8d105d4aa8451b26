package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

func (e *earlyExecs) WaitExec(ctx context.Context, _ string, _ id.Exec) (api.Exec, error) {
	<-ctx.Done()
	return api.Exec{}, context.Cause(ctx)
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

// quietExecs has one command without output, which ends a moment after its output has.
type quietExecs struct {
	Execs
	ended chan struct{}
}

func (e *quietExecs) GetExec(context.Context, string, id.Exec) (api.Exec, error) {
	select {
	case <-e.ended:
		return api.Exec{State: api.ExecExited}, nil
	default:
		return api.Exec{State: api.ExecRunning}, nil
	}
}

func (e *quietExecs) WaitExec(context.Context, string, id.Exec) (api.Exec, error) {
	<-e.ended
	return api.Exec{State: api.ExecExited}, nil
}

func (e *quietExecs) ExecOutput(context.Context, string, id.Exec, string, int64, bool) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// Nobody waits for a command longer than it takes.
func TestFollowEndsWithTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &quietExecs{ended: make(chan struct{})}
		time.AfterFunc(5*time.Millisecond, func() { close(e.ended) })
		s := &Server{cfg: Config{Backend: Backend{Execs: e}}}
		r := s.follow(t.Context(), "s", "x", "stdout", 0)
		defer r.Close()
		began := time.Now()
		if got, err := io.ReadAll(r); err != nil || len(got) > 0 {
			t.Errorf("%q, %v", got, err)
		}
		if took := time.Since(began); took != 5*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
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
