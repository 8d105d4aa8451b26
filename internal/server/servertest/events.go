package servertest

import (
	"bytes"
	"context"
	"io"
	"iter"
	"slices"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// ListEvents lists events.
func (b *Backend) ListEvents(_ context.Context, ref string, after uint64, limit int) (api.List[api.Event], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	rest := s.events[min(after, uint64(len(s.events))):]
	n := min(len(rest), limit)
	return api.List[api.Event]{Data: slices.Clone(rest[:n]), HasMore: n < len(rest)}, nil
}

// Subscribe follows a session.
func (b *Backend) Subscribe(ctx context.Context, ref string, after uint64) (iter.Seq2[api.StreamItem, error], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return nil, err
	}
	if after > uint64(len(s.events)) {
		return nil, errdefs.New(errdefs.Invalid, "unknown_cursor", "%d is beyond the last event, %d", after, len(s.events))
	}
	seenDeltas := len(s.deltas)
	return func(yield func(api.StreamItem, error) bool) {
		for {
			b.mu.Lock()
			events, deltas := slices.Clone(s.events[after:]), slices.Clone(s.deltas[seenDeltas:])
			deleted, changed := s.deleted, b.changed
			b.mu.Unlock()
			for _, d := range deltas {
				seenDeltas++
				if !yield(api.StreamItem{Delta: &d}, nil) {
					return
				}
			}
			for _, ev := range events {
				after = ev.Seq
				if !yield(api.StreamItem{Event: &ev}, nil) {
					return
				}
			}
			if deleted {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}, nil
}

// SendMessages appends messages.
func (b *Backend) SendMessages(_ context.Context, ref string, req api.SendMessages) (api.List[api.Event], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.List[api.Event]{}, err
	}
	if req.ExpectedLastSeq != nil && *req.ExpectedLastSeq != s.LastSeq {
		return api.List[api.Event]{}, errdefs.New(errdefs.Conflict, "seq_conflict", "the log is at %d, not at %d", s.LastSeq, *req.ExpectedLastSeq)
	}
	var out api.List[api.Event]
	for _, m := range req.Messages {
		out.Data = append(out.Data, b.append(s, "message.user", map[string]any{"text": m.Text, "delivery": m.Delivery}))
	}
	return out, nil
}

// Timeline is the whole log.
func (b *Backend) Timeline(_ context.Context, ref string) (api.Timeline, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.Timeline{}, err
	}
	return api.Timeline{SessionID: s.ID, LastSeq: s.LastSeq, Ranges: []api.Range{{SessionID: s.ID, FromSeq: 1, ToSeq: s.LastSeq}}}, nil
}

// TimelineEvents lists the whole log.
func (b *Backend) TimelineEvents(ctx context.Context, ref string, page api.Page) (api.List[api.Event], error) {
	all, err := b.ListEvents(ctx, ref, 0, api.MaxLimit)
	for i, e := range all.Data {
		if e.ID == page.After {
			all.Data = all.Data[i+1:]
			break
		}
	}
	return all, err
}

// Diff says what it was asked.
func (b *Backend) Diff(_ context.Context, x, y string) (api.Diff, error) {
	return api.Diff{A: x, B: y, Files: []api.FileDiff{{Path: "/root/a", Change: "changed", ASize: 1, BSize: 2, Text: "-x\n+y"}}}, nil
}

// PutArtifact stores an artifact.
func (b *Backend) PutArtifact(data []byte) id.Artifact {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := id.NewArtifact()
	b.artifacts[name] = data
	return name
}

// Artifact opens an artifact.
func (b *Backend) Artifact(_ context.Context, _ string, name id.Artifact) (io.ReadSeekCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.artifacts[name]
	if !ok {
		return nil, errdefs.New(errdefs.NotFound, "artifact_not_found", "there is no artifact %q", name)
	}
	return nopSeekCloser{bytes.NewReader(data)}, nil
}

type nopSeekCloser struct{ *bytes.Reader }

func (nopSeekCloser) Close() error { return nil }

// CreateCheckpoint stores a checkpoint.
func (b *Backend) CreateCheckpoint(_ context.Context, ref string, req api.CreateCheckpoint) (api.Checkpoint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.Checkpoint{}, err
	}
	k := api.Checkpoint{
		ID: string(id.NewCheckpoint()), SessionID: s.ID, Seq: s.LastSeq, State: api.CheckpointWarm, Kind: "user", Message: req.Message, Keep: req.Keep,
		CreatedAt: time.Now().UTC(), Memory: true,
	}
	b.checkpoints = append(b.checkpoints, k)
	return k, nil
}

// ListCheckpoints lists a session's checkpoints.
func (b *Backend) ListCheckpoints(_ context.Context, ref string, page api.Page) (api.List[api.Checkpoint], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.List[api.Checkpoint]{}, err
	}
	var all []api.Checkpoint
	for _, k := range b.checkpoints {
		if k.SessionID == s.ID {
			all = append(all, k)
		}
	}
	return paged(all, page, func(k api.Checkpoint) string { return k.ID }), nil
}

// GetCheckpoint shows a checkpoint.
func (b *Backend) GetCheckpoint(_ context.Context, name id.Checkpoint) (api.Checkpoint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.checkpoints {
		if k.ID == string(name) {
			return k, nil
		}
	}
	return api.Checkpoint{}, errdefs.New(errdefs.NotFound, "checkpoint_not_found", "there is no checkpoint %q", name)
}

// DeleteCheckpoint deletes a checkpoint.
func (b *Backend) DeleteCheckpoint(ctx context.Context, name id.Checkpoint) error {
	if _, err := b.GetCheckpoint(ctx, name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkpoints = slices.DeleteFunc(b.checkpoints, func(k api.Checkpoint) bool { return k.ID == string(name) })
	return nil
}

// ForkSession makes sessions.
func (b *Backend) ForkSession(ctx context.Context, ref string, req api.ForkSession) (api.List[api.Session], error) {
	parent, err := b.GetSession(ctx, ref)
	if err != nil {
		return api.List[api.Session]{}, err
	}
	var out api.List[api.Session]
	for range req.Count {
		s, err := b.CreateSession(ctx, api.CreateSession{})
		if err != nil {
			return out, err
		}
		s.Parent = &api.Parent{SessionID: parent.ID, CheckpointID: req.Checkpoint, CutSeq: parent.LastSeq}
		out.Data = append(out.Data, s)
	}
	return out, nil
}

// RollbackSession plans.
func (b *Backend) RollbackSession(ctx context.Context, ref string, req api.RollbackSession) (api.RollbackPlan, error) {
	s, err := b.GetSession(ctx, ref)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	p := api.RollbackPlan{SessionID: s.ID, CheckpointID: req.Checkpoint, DryRun: req.DryRun, Stays: []string{"effects"}}
	if !req.DryRun {
		p.UndoCheckpointID = string(id.NewCheckpoint())
	}
	return p, nil
}

// RecoverSession has nothing to recover.
func (b *Backend) RecoverSession(ctx context.Context, ref string, req api.RecoverSession) (api.RecoverReport, error) {
	if _, err := b.GetSession(ctx, ref); err != nil {
		return api.RecoverReport{}, err
	}
	return api.RecoverReport{}, errdefs.New(errdefs.Conflict, "nothing_to_recover", "session %s is well", ref)
}

// UndoSession has nothing to undo.
func (b *Backend) UndoSession(ctx context.Context, ref string) (api.RollbackPlan, error) {
	if _, err := b.GetSession(ctx, ref); err != nil {
		return api.RollbackPlan{}, err
	}
	return api.RollbackPlan{}, errdefs.New(errdefs.Conflict, "nothing_to_undo", "%s was not rolled back", ref)
}

// VerifySession finds a log in order.
func (b *Backend) VerifySession(ctx context.Context, ref string) (api.VerifyReport, error) {
	s, err := b.GetSession(ctx, ref)
	return api.VerifyReport{SessionID: s.ID, OK: true, Events: s.LastSeq}, err
}

// Health is fine.
func (b *Backend) Health(context.Context) (api.Health, error) {
	return api.Health{Status: "ok", Version: "test"}, nil
}

// Doctor finds a warning.
func (b *Backend) Doctor(context.Context) (api.DoctorReport, error) {
	return api.DoctorReport{OK: true, Checks: []api.DoctorCheck{{Name: "kernel", Status: "warn", Detail: "no KVM"}}}, nil
}

// Version is a test's.
func (b *Backend) Version() api.BuildInfo { return api.BuildInfo{Version: "test"} }
