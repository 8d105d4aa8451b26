package service

import (
	"context"
	"iter"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// ListEvents returns events after a position.
func (s *Service) ListEvents(ctx context.Context, ref string, after uint64, limit int) (api.List[api.Event], error) {
	row, err := s.cfg.Rows.Session(ctx, ref)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	if after > uint64(row.HeadSeq) {
		return api.List[api.Event]{}, unknownCursor(after, row.HeadSeq)
	}
	events, err := s.cfg.Log.Read(ctx, row.ID, event.Seq(after), limit+1)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	more := len(events) > limit
	out := list(events[:min(len(events), limit)], presentEvent)
	out.HasMore = more
	return out, nil
}

// TimelineEvents lists the events on a session's timeline, in order: first those that it has from its ancestors, which may be deleted.
func (s *Service) TimelineEvents(ctx context.Context, ref string, page api.Page) (api.List[api.Event], error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	line, err := l.timeline(ctx)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	out := api.List[api.Event]{Data: []api.Event{}}
	found := page.After == ""
	for e, err := range line.Events(ctx, s.cfg.Log) {
		switch {
		case err != nil:
			return api.List[api.Event]{}, err
		case !found:
			found = string(e.ID) == page.After
			continue
		case len(out.Data) == page.Limit:
			out.HasMore = true
			return out, nil
		}
		out.Data = append(out.Data, presentEvent(e))
	}
	if !found {
		return out, errdefs.New(errdefs.Invalid, event.CodeUnknownCursor, "there is no event %q on the timeline", page.After).
			WithHint("a rollback may have taken it off; start anew")
	}
	return out, nil
}

func unknownCursor(after uint64, head event.Seq) error {
	return errdefs.New(errdefs.Invalid, event.CodeUnknownCursor, "there is no event %d: the log ends at %d", after, head).
		WithHint("start from 0, or from the last seq that you have seen")
}

// Subscribe yields events after the cursor, with deltas in between.
func (s *Service) Subscribe(ctx context.Context, ref string, after uint64) (iter.Seq2[api.StreamItem, error], error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return nil, err
	}
	if head := l.state().HeadSeq; after > uint64(head) {
		return nil, unknownCursor(after, head)
	}
	return func(yield func(api.StreamItem, error) bool) { l.stream(ctx, event.Seq(after), yield) }, nil
}

type streamed struct {
	event event.Event
	err   error
}

func (l *live) stream(ctx context.Context, after event.Seq, yield func(api.StreamItem, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	deltas := make(chan agent.Delta, 64)
	l.mu.Lock()
	l.watchers[deltas] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.watchers, deltas)
		l.mu.Unlock()
	}()
	events := make(chan streamed)
	go func() { // ends with ctx, at the latest when stream returns
		defer close(events)
		for e, err := range l.svc.cfg.Log.Subscribe(ctx, l.id, after) {
			select {
			case events <- streamed{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case x, ok := <-events:
			if !ok {
				return
			}
			if x.err != nil {
				yield(api.StreamItem{}, x.err)
				return
			}
			e := presentEvent(x.event)
			if !yield(api.StreamItem{Event: &e}, nil) {
				return
			}
		case d := <-deltas:
			out := presentDelta(l.id, d)
			if !yield(api.StreamItem{Delta: &out}, nil) {
				return
			}
		case <-l.svc.run.Done():
			yield(api.StreamItem{}, errStopping)
			return
		}
	}
}

func presentDelta(sid id.Session, d agent.Delta) api.Delta {
	out := api.Delta{SessionID: string(sid), Kind: "text", Text: d.Text}
	switch {
	case d.Thinking != "":
		out.Kind, out.Text = "thinking", d.Thinking
	case d.ToolName != "":
		out.Kind, out.Text = "tool", d.ToolName
	}
	return out
}

// SendMessages puts messages into a session, all or none, and lets the agent see them.
func (s *Service) SendMessages(ctx context.Context, ref string, req api.SendMessages) (api.List[api.Event], error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	st := l.state()
	if st.Spec.Model == "" {
		return api.List[api.Event]{}, errdefs.New(errdefs.Conflict, "no_agent", "session %s has no model, so nobody would read the message", st.Name).
			WithHint("create it with --model, or use perdure exec")
	}
	if err := l.expired(ctx); err != nil {
		return api.List[api.Event]{}, err
	}
	o, err := s.once(ctx, event.MessageUser, l.id)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	if o.done {
		sent, err := s.cfg.Log.Read(ctx, l.id, o.event.Seq-1, len(req.Messages)) // appended at once, so they stand together
		l.wakeUp()
		return list(sent, presentEvent), err
	}
	drafts := make([]event.Draft, len(req.Messages))
	for i, m := range req.Messages {
		delivery := event.Delivery(m.Delivery)
		switch delivery {
		case "":
			delivery = event.Queue
		case event.Steer, event.Queue, event.Interrupt:
		default:
			return api.List[api.Event]{}, errdefs.New(errdefs.Invalid, "unknown_delivery", "there is no delivery %q", m.Delivery).WithHint("use steer, queue or interrupt")
		}
		if m.Text == "" {
			return api.List[api.Event]{}, errdefs.New(errdefs.Invalid, "empty_message", "a message without text")
		}
		drafts[i] = event.Draft{Type: event.MessageUser, ActorID: actor.From(ctx).ID, Data: event.MessageUserData{Text: m.Text, Delivery: delivery}}
	}
	drafts[0].ID = o.id
	expected := event.AnySeq
	if req.ExpectedLastSeq != nil {
		expected = event.Seq(*req.ExpectedLastSeq)
	}
	stored, err := l.appendAt(ctx, expected, drafts...)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	l.wakeUp()
	return list(stored, presentEvent), nil
}

// Timeline shows what the model sees, as ranges.
func (s *Service) Timeline(ctx context.Context, ref string) (api.Timeline, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Timeline{}, err
	}
	line, err := l.timeline(ctx)
	if err != nil {
		return api.Timeline{}, err
	}
	rows, err := s.cfg.Rows.Checkpoints(ctx, l.id)
	if err != nil {
		return api.Timeline{}, err
	}
	out := api.Timeline{SessionID: string(l.id), LastSeq: uint64(l.state().HeadSeq), Ranges: []api.Range{}, Abandoned: []api.Range{}, Checkpoints: []api.Checkpoint{}}
	for _, r := range line {
		out.Ranges = append(out.Ranges, presentRange(r))
		if r.Session == l.id {
			continue
		}
		inherited, err := s.cfg.Rows.Checkpoints(ctx, r.Session)
		if err != nil {
			return api.Timeline{}, err
		}
		for _, c := range inherited {
			if !c.Deleted && c.CutSeq >= r.From && c.CutSeq <= r.To {
				out.Checkpoints = append(out.Checkpoints, presentCheckpoint(c))
			}
		}
	}
	next := event.Seq(1)
	for _, r := range line {
		if r.Session != l.id {
			continue
		}
		if r.From > next {
			out.Abandoned = append(out.Abandoned, api.Range{SessionID: string(l.id), FromSeq: uint64(next), ToSeq: uint64(r.From - 1)})
		}
		next = max(next, r.To+1)
	}
	for _, c := range rows {
		if !c.Deleted {
			out.Checkpoints = append(out.Checkpoints, presentCheckpoint(c))
		}
	}
	return out, nil
}

func presentRange(r session.Range) api.Range {
	return api.Range{SessionID: string(r.Session), FromSeq: uint64(r.From), ToSeq: uint64(r.To)}
}
