package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/server"
)

// Backend holds sessions in memory. Its methods may be called at the same time.
type Backend struct {
	Root string // files of all workspaces are below

	mu          sync.Mutex // guards the fields below, and what hangs on them
	sessions    []*session
	checkpoints []api.Checkpoint
	execs       map[id.Exec]*command
	artifacts   map[id.Artifact][]byte
	images      []api.Image
	changed     chan struct{} // closed and replaced at each change
	creates     int           // calls of CreateSession that made one
	block       chan struct{} // CreateSession waits for it, if set
	fail        error         // what CreateSession fails with, if set
	actors      []actor.Actor // of the calls of CreateSession
}

type session struct {
	api.Session
	events  []api.Event
	deltas  []api.Delta
	ports   []api.Port
	deleted bool
}

// New returns an empty Backend whose files are below root.
func New(root string) *Backend {
	return &Backend{Root: root, execs: map[id.Exec]*command{}, artifacts: map[id.Artifact][]byte{}, changed: make(chan struct{})}
}

// Server is the Backend as the server takes it.
func (b *Backend) Server() server.Backend {
	return server.Backend{Sessions: b, Settings: b, Ports: b, Events: b, Execs: b, Files: b, Checkpoints: b, System: b, Images: b}
}

// notify wakes everybody who waits. b.mu is held.
func (b *Backend) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// find returns a session. b.mu is held.
func (b *Backend) find(ref string) (*session, error) {
	for _, s := range b.sessions {
		if !s.deleted && (s.ID == ref || s.Name == ref) {
			return s, nil
		}
	}
	return nil, errdefs.New(errdefs.NotFound, "session_not_found", "there is no session %q", ref).WithHint("List them with: perdure ls")
}

// Block makes CreateSession wait until the returned function is called.
func (b *Backend) Block() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ch := make(chan struct{})
	b.block = ch
	return func() { close(ch) }
}

// FailCreate makes CreateSession fail, until it is called with nil.
func (b *Backend) FailCreate(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// Created is how many sessions were made, and by whom.
func (b *Backend) Created() (int, []actor.Actor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.creates, slices.Clone(b.actors)
}

// CreateSession makes a session.
func (b *Backend) CreateSession(ctx context.Context, req api.CreateSession) (api.Session, error) {
	b.mu.Lock()
	block := b.block
	b.actors = append(b.actors, actor.From(ctx))
	b.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return api.Session{}, context.Cause(ctx)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return api.Session{}, b.fail
	}
	if req.Name == "" {
		req.Name = fmt.Sprintf("session-%d", len(b.sessions)+1)
	}
	if _, err := b.find(req.Name); err == nil {
		return api.Session{}, errdefs.New(errdefs.Conflict, "name_taken", "there is already a session %q", req.Name).WithHint("Choose another name.")
	}
	now := time.Now().UTC()
	s := &session{Session: api.Session{
		ID: string(id.NewSession()), Name: req.Name, Status: api.StatusIdle, Goal: req.Goal, Model: req.Model, CreatedAt: now, UpdatedAt: now, Limits: req.Limits,
		Workspace: api.Workspace{ID: string(id.NewWorkspace()), State: api.WorkspaceRunning, Driver: "process", Image: "host"},
	}}
	b.sessions = append(b.sessions, s)
	b.creates++
	b.append(s, "session.created", map[string]any{"name": s.Name, "goal": s.Goal})
	if req.Goal != "" {
		s.Status = api.StatusRunning
		b.append(s, "message.user", map[string]any{"text": req.Goal, "delivery": "queue"})
	}
	return s.Session, nil
}

// append adds an event. b.mu is held.
func (b *Backend) append(s *session, typ string, data any) api.Event {
	body, err := json.Marshal(data)
	if err != nil {
		body = []byte("null")
	}
	ev := api.Event{
		ID: string(id.NewEvent()), Seq: uint64(len(s.events) + 1), Type: typ, SessionID: s.ID, ActorID: "local", CreatedAt: time.Now().UTC(), Data: body, Hash: "00",
	}
	s.events = append(s.events, ev)
	s.LastSeq = ev.Seq
	b.notify()
	return ev
}

// Append adds an event to a session.
func (b *Backend) Append(ref, typ string, data any) (api.Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.Event{}, err
	}
	return b.append(s, typ, data), nil
}

// Delta sends a delta to whoever follows the session now.
func (b *Backend) Delta(ref, text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return err
	}
	s.deltas = append(s.deltas, api.Delta{SessionID: s.ID, Kind: "text", Text: text})
	b.notify()
	return nil
}

// Finish ends the turn of a session.
func (b *Backend) Finish(ref, status, reason string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return err
	}
	s.Status, s.StopReason = status, reason
	b.append(s, "turn.finished", map[string]any{"reason": reason})
	return nil
}

// GetSession shows a session.
func (b *Backend) GetSession(_ context.Context, ref string) (api.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.Session{}, err
	}
	return s.Session, nil
}

// ListSessions lists sessions.
func (b *Backend) ListSessions(_ context.Context, page api.Page) (api.List[api.Session], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []api.Session
	for _, s := range b.sessions {
		if !s.deleted {
			all = append(all, s.Session)
		}
	}
	return paged(all, page, func(s api.Session) string { return s.ID }), nil
}

func paged[T any](all []T, page api.Page, key func(T) string) api.List[T] {
	if page.After != "" {
		if i := slices.IndexFunc(all, func(v T) bool { return key(v) == page.After }); i >= 0 {
			all = all[i+1:]
		}
	}
	n := min(len(all), page.Limit)
	return api.List[T]{Data: all[:n], HasMore: n < len(all)}
}

// DeleteSession deletes a session.
func (b *Backend) DeleteSession(_ context.Context, ref string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return err
	}
	s.deleted = true
	b.notify()
	return nil
}

// CancelSession ends a turn.
func (b *Backend) CancelSession(ctx context.Context, ref string, req api.CancelSession) (api.Session, error) {
	return b.set(ref, func(s *session) {
		if s.Status == api.StatusRunning {
			s.Status, s.StopReason = api.StatusIdle, "canceled"
			b.append(s, "session.canceled", map[string]any{"reason": req.Reason})
			b.append(s, "turn.finished", map[string]any{"reason": "canceled"})
		}
	})
}

// ConfigureSession takes an idle policy.
func (b *Backend) ConfigureSession(_ context.Context, ref string, req api.ConfigureSession) (api.Session, error) {
	return b.set(ref, func(s *session) {
		if req.Idle != nil && req.Idle.SuspendAfterMS != nil {
			s.Idle.SuspendAfterMS = *req.Idle.SuspendAfterMS
		}
	})
}

func (b *Backend) set(ref string, f func(*session)) (api.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.Session{}, err
	}
	f(s)
	b.notify()
	return s.Session, nil
}

// WaitSession waits for a state.
func (b *Backend) WaitSession(ctx context.Context, ref string, states []string) (api.Session, error) {
	for {
		b.mu.Lock()
		s, err := b.find(ref)
		changed := b.changed
		b.mu.Unlock()
		if err != nil {
			return api.Session{}, err
		}
		now := []string{s.Status, s.StopReason, s.Workspace.State}
		if s.Status != api.StatusRunning {
			now = append(now, api.WaitDone)
		}
		if slices.ContainsFunc(states, func(w string) bool { return slices.Contains(now, w) }) {
			return s.Session, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return api.Session{}, context.Cause(ctx)
		}
	}
}

func (b *Backend) move(ref, state string) (api.Session, error) {
	return b.set(ref, func(s *session) {
		s.Workspace.State = state
		b.append(s, "workspace."+strings.ReplaceAll(state, "running", "resumed"), map[string]any{})
	})
}

// PauseSession and its kin only set the state.
func (b *Backend) PauseSession(_ context.Context, ref string) (api.Session, error) {
	return b.move(ref, api.WorkspacePaused)
}

// SuspendSession sets the state.
func (b *Backend) SuspendSession(_ context.Context, ref string) (api.Session, error) {
	return b.move(ref, api.WorkspaceSuspended)
}

// StopSession sets the state.
func (b *Backend) StopSession(_ context.Context, ref string) (api.Session, error) {
	return b.move(ref, api.WorkspaceStopped)
}

// ResumeSession sets the state.
func (b *Backend) ResumeSession(_ context.Context, ref string) (api.Session, error) {
	return b.move(ref, api.WorkspaceRunning)
}
