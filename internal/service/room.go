package service

import (
	"context"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
)

const limitSnapshots = "snapshot_bytes" // its JSON name in event.Limits

// room fails when the session's checkpoints take as much as they may. What keeps work from being lost, before a sleep or a rollback, is taken all the
// same.
func (l *live) room(ctx context.Context, st session.State, kind event.CheckpointKind) error {
	limit := st.Spec.Limits.Snapshots
	if limit <= 0 {
		return nil
	}
	used, err := l.snapshotBytes(ctx, st)
	if err != nil {
		return err
	}
	tell := func(what event.Type, told []string) error {
		if named(told, limitSnapshots) {
			return nil
		}
		_, err := l.append(ctx, event.Draft{Type: what, ActorID: systemActor, Data: event.LimitData{Limit: limitSnapshots, Used: used, Max: limit}})
		return err
	}
	switch kind {
	case event.KindSuspend, event.KindStop, event.KindUndo:
		return nil
	}
	if used < limit {
		if float64(used) < limitWarns*float64(limit) {
			return nil
		}
		return tell(event.LimitWarned, st.Warned)
	}
	if err := tell(event.LimitReached, st.Reached); err != nil {
		return err
	}
	return errdefs.New(errdefs.Exhausted, "snapshot_limit", "the checkpoints of session %s take %d bytes of the %d that they may", st.Name, used, limit).
		WithHint("perdure checkpoints %s lists them, and perdure checkpoints rm deletes some; perdure checkpoints usage %s says what they take", st.Name, st.Name)
}

// limitWarns is the part of a limit at which a session is told.
const limitWarns = 0.8

// snapshotBytes is what the checkpoints of a session take: the stored memory images of its lineage, and the files that its checkpoints hold.
func (l *live) snapshotBytes(ctx context.Context, st session.State) (int64, error) {
	first, err := l.svc.lineage(ctx, st)
	if err != nil {
		return 0, err
	}
	u, err := l.svc.checkpoints.ImageUsage(ctx, first)
	if err != nil {
		return 0, err
	}
	rows, err := l.svc.cfg.Rows.Checkpoints(ctx, l.id)
	if err != nil {
		return 0, err
	}
	used := u.Stored
	for _, c := range rows {
		if !c.Deleted {
			used += c.FileBytes
		}
	}
	return used, nil
}
