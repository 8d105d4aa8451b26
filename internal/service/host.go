package service

import (
	"context"
	"io"
	"iter"

	"perdure.dev/perdure/internal/agent"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/tool"
)

// host is a live session as its harness sees it.
type host struct{ l *live }

var _ agent.Host = host{}

// agentActor signs what the harness appends.
const agentActor id.Actor = "agent"

func (h host) Session() id.Session { return h.l.id }

func (h host) Append(ctx context.Context, drafts ...event.Draft) ([]event.Event, error) {
	for i := range drafts {
		if drafts[i].ActorID == "" {
			drafts[i].ActorID = agentActor
		}
	}
	if err := h.l.beforeCalls(ctx, drafts); err != nil {
		return nil, err
	}
	stored, err := h.l.append(ctx, drafts...)
	if err == nil {
		h.l.afterTurn(ctx, drafts)
	}
	return stored, err
}

func (h host) State(context.Context) (session.State, error) { return h.l.state(), nil }

func (h host) Timeline(ctx context.Context) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		line, err := h.l.timeline(ctx)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		line.Events(ctx, h.l.svc.cfg.Log)(yield)
	}
}

func (h host) Events(ctx context.Context, after event.Seq) iter.Seq2[event.Event, error] {
	return readAll(ctx, h.l.svc.cfg.Log, h.l.id, after)
}

func (h host) Changed() <-chan struct{} { return h.l.changed }

func (h host) Sandbox(ctx context.Context) (sandbox.Sandbox, error) { return h.l.running(ctx) }

func (h host) Checkpoint(ctx context.Context, message string) (event.CheckpointCreatedData, error) {
	var created event.CheckpointCreatedData
	if _, err := h.l.running(ctx); err != nil {
		return created, err
	}
	err := h.l.operate(ctx, func() (err error) {
		created, err = h.l.take(ctx, cutting{kind: event.KindAgent, message: message})
		return err
	})
	return created, err
}

func (h host) Artifacts() tool.Artifacts { return artifacts{h.l.svc} }

func (h host) Delta(d agent.Delta) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	for w := range h.l.watchers {
		select {
		case w <- d:
		default: // an observer that is slow misses parts, never the message
		}
	}
}

// timeline returns what the session remembers now.
func (l *live) timeline(ctx context.Context) (session.Timeline, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	return l.tracker.Timeline(ctx)
}

// readAll yields a log after a position, as far as it goes now.
func readAll(ctx context.Context, log event.Log, sid id.Session, after event.Seq) iter.Seq2[event.Event, error] {
	const page = 500
	return func(yield func(event.Event, error) bool) {
		for {
			events, err := log.Read(ctx, sid, after, page)
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if len(events) < page {
				return
			}
		}
	}
}

// artifacts keeps outputs as files of their session.
type artifacts struct{ svc *Service }

func (a artifacts) Put(ctx context.Context, sid id.Session, name string, r io.Reader) (id.Artifact, int64, error) {
	return a.svc.putArtifact(ctx, sid, name, r)
}
