package agent_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/model/scripted"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store/sqlite"
	"perdure.dev/perdure/internal/tool"
	"perdure.dev/perdure/internal/tool/tooltest"
)

// errCrash stands for the death of the daemon.
var errCrash = errors.New("crashed at an append")

// world is everything of a session that outlives its daemon: the log, the sandbox, the directory.
type world struct {
	t       *testing.T
	log     event.Log
	sid     id.Session
	lease   event.Generation
	sandbox sandbox.Sandbox
	home    string
	changed chan struct{}

	mu        sync.Mutex // guards all below
	appends   int
	crashAt   int  // the harness's n-th append fails, from 1; 0: never
	after     bool // the append is stored, and only its acknowledgement is lost
	deltas    []agent.Delta
	artifacts map[id.Artifact]string
	onAppend  func([]event.Event)
	seen      [][]model.Message // every request that reached the model
	noSandbox error
	window    func([]model.Message) bool // refuses requests as too long
}

func newWorld(t *testing.T, script string, goal string, limits event.Limits) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir(), script, goal, limits)
}

func newWorldIn(t *testing.T, dir, script, goal string, limits event.Limits) *world {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return newWorldOn(t, store, dir, script, goal, limits)
}

func newWorldOn(t *testing.T, log event.Log, dir, script, goal string, limits event.Limits) *world {
	t.Helper()
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "script.yaml")
	if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	box := tooltest.New(home)
	t.Cleanup(func() { _ = box.Destroy(context.WithoutCancel(t.Context())) })
	w := &world{
		t: t, log: log, sid: id.NewSession(), home: home, changed: make(chan struct{}, 1),
		sandbox: box, artifacts: map[id.Artifact]string{},
	}
	w.append0(event.Draft{Type: event.SessionCreated, ActorID: "tester", Data: event.SessionCreatedData{
		Name: strings.ReplaceAll(string(w.sid), "_", "-"), Goal: goal, WorkspaceID: id.NewWorkspace(),
		Spec: event.Spec{Model: "scripted:" + file, Image: "host", Driver: "process", Limits: limits},
	}})
	return w
}

func (w *world) append0(drafts ...event.Draft) []event.Event {
	w.t.Helper()
	a := event.Append{Session: w.sid, Lease: w.lease, Expected: event.AnySeq, Events: drafts}
	if drafts[0].Type == event.SessionCreated {
		a.Expected = 0
	}
	stored, err := w.log.Append(w.t.Context(), a)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.lease == 0 {
		if w.lease, err = w.log.Acquire(w.t.Context(), w.sid, id.NewLease()); err != nil {
			w.t.Fatal(err)
		}
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return stored
}

func (w *world) send(text string, d event.Delivery) {
	w.t.Helper()
	w.append0(event.Draft{Type: event.MessageUser, ActorID: "tester", Data: event.MessageUserData{Text: text, Delivery: d}})
}

func (w *world) agent() *agent.Agent {
	return agent.New(agent.Options{
		Models: model.Registry{"scripted": w.watchModel(scripted.Constructor(clock.System{}))},
		Home:   w.home, MaxOutput: 2000, Grace: 500 * time.Millisecond,
		Retry: model.Policy{Attempts: 3, Base: time.Millisecond, Max: 2 * time.Millisecond},
	})
}

// watchModel checks each request as an API would, and keeps it.
func (w *world) watchModel(open model.Constructor) model.Constructor {
	return func(ctx context.Context, name string) (model.Provider, error) {
		p, err := open(ctx, name)
		return &checkedProvider{p, w}, err
	}
}

type checkedProvider struct {
	model.Provider
	w *world
}

func (c *checkedProvider) Chat(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	if err := model.CheckHistory(req.Messages); err != nil {
		c.w.t.Errorf("an API would refuse this: %v", err)
	}
	c.w.mu.Lock()
	c.w.seen = append(c.w.seen, req.Messages)
	c.w.mu.Unlock()
	if c.w.window != nil && c.w.window(req.Messages) {
		return model.Response{}, model.NewError(model.ContextTooLong, nil, "too long")
	}
	return c.Provider.Chat(ctx, req, sink)
}

// run runs a fresh harness on the log, as a restarted daemon does.
func (w *world) run() error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	return w.agent().Run(ctx, w)
}

func (w *world) mustRun() {
	w.t.Helper()
	if err := w.run(); err != nil {
		w.t.Fatalf("run: %v", err)
	}
}

func (w *world) Session() id.Session { return w.sid }

func (w *world) Append(ctx context.Context, drafts ...event.Draft) ([]event.Event, error) {
	w.mu.Lock()
	w.appends++
	crash := w.crashAt > 0 && w.appends >= w.crashAt
	dead := w.crashAt > 0 && w.appends > w.crashAt
	w.mu.Unlock()
	if dead || crash && !w.after {
		return nil, errCrash
	}
	stored, err := w.log.Append(ctx, event.Append{Session: w.sid, Lease: w.lease, Expected: event.AnySeq, Events: drafts})
	if err != nil {
		return nil, err
	}
	if w.onAppend != nil {
		w.onAppend(stored)
	}
	if crash {
		return nil, errCrash
	}
	return stored, nil
}

func (w *world) State(ctx context.Context) (session.State, error) {
	tr, err := session.Load(ctx, w.log, w.sid)
	if err != nil {
		return session.State{}, err
	}
	return tr.State(), nil
}

func (w *world) Timeline(ctx context.Context) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		tr, err := session.Load(ctx, w.log, w.sid)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		line, err := tr.Timeline(ctx)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		for e, err := range line.Events(ctx, w.log) {
			if !yield(e, err) {
				return
			}
		}
	}
}

func (w *world) Events(ctx context.Context, after event.Seq) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		events, err := w.log.Read(ctx, w.sid, after, 1<<20)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (w *world) Changed() <-chan struct{} { return w.changed }

func (w *world) Sandbox(context.Context) (sandbox.Sandbox, error) {
	if w.noSandbox != nil {
		return nil, w.noSandbox
	}
	return w.sandbox, nil
}

func (w *world) Checkpoint(ctx context.Context, message string) (event.CheckpointCreatedData, error) {
	head, err := w.log.Head(ctx, w.sid)
	if err != nil {
		return event.CheckpointCreatedData{}, err
	}
	d := event.CheckpointCreatedData{
		CheckpointID: id.NewCheckpoint(), Kind: event.KindAgent, Message: message, CutSeq: head.Seq, Memory: true, Layers: []id.Layer{},
	}
	_, err = w.Append(ctx, event.Draft{Type: event.CheckpointCreated, ActorID: agent.Actor, Data: d})
	return d, err
}

func (w *world) Artifacts() tool.Artifacts { return w }

func (w *world) Put(_ context.Context, _ id.Session, _ string, r io.Reader) (id.Artifact, int64, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a := id.NewArtifact()
	w.artifacts[a] = string(b)
	return a, int64(len(b)), nil
}

func (w *world) Delta(d agent.Delta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deltas = append(w.deltas, d)
}

// all returns the log.
func (w *world) all() []event.Event {
	w.t.Helper()
	events, err := w.log.Read(w.t.Context(), w.sid, 0, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// only returns the payloads of one type.
func only[T any](w *world, typ event.Type) []T {
	w.t.Helper()
	var out []T
	for _, e := range w.all() {
		if e.Type != typ {
			continue
		}
		d, err := event.DecodeData[T](e)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

func (w *world) results() []event.ToolFinishedData {
	return only[event.ToolFinishedData](w, event.ToolFinished)
}

func (w *world) reasons() []string {
	var out []string
	for _, d := range only[event.TurnFinishedData](w, event.TurnFinished) {
		out = append(out, d.Reason)
	}
	return out
}

func (w *world) lastText() string {
	m := only[event.MessageAgentData](w, event.MessageAgent)
	if len(m) == 0 {
		return ""
	}
	return m[len(m)-1].Text
}

// check checks what must hold of every log: one result for each call, after its request, and none else.
func (w *world) check() {
	w.t.Helper()
	open := map[id.Event]bool{}
	done := map[id.Event]bool{}
	for _, e := range w.all() {
		switch e.Type {
		case event.ToolRequested:
			open[e.ID] = true
		case event.ToolFinished:
			if done[e.CausationID] {
				w.t.Errorf("call %s has two results", e.CausationID)
			}
			if !open[e.CausationID] {
				w.t.Errorf("a result without a call: %s", e.Data)
			}
			delete(open, e.CausationID)
			done[e.CausationID] = true
		case event.TurnFinished:
			if len(open) > 0 {
				w.t.Errorf("the turn ends at %d with %d open calls", e.Seq, len(open))
			}
		}
	}
	if len(open) > 0 {
		w.t.Errorf("%d calls have no result", len(open))
	}
}

// ran returns the lines that commands have appended to a file in the workspace.
func (w *world) ran(name string) []string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.home, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Fields(string(b))
}

func (w *world) dump() {
	for _, e := range w.all() {
		w.t.Logf("%d %s %s", e.Seq, e.Type, e.Data)
	}
}

func (w *world) touch(name string) {
	if err := os.WriteFile(filepath.Join(w.home, name), nil, 0o644); err != nil {
		w.t.Error(err)
	}
}

// requested returns the id of the i-th tool.requested event.
func (w *world) requested(i int) id.Event {
	w.t.Helper()
	for _, e := range w.all() {
		if e.Type != event.ToolRequested {
			continue
		}
		if i == 0 {
			return e.ID
		}
		i--
	}
	w.t.Fatal("no such call")
	return ""
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}
