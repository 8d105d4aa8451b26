package session

import (
	"slices"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// ErrTimelineMoved is what Fold returns for an event that moves the timeline to a place where the given view is not: a
// rollback, or the birth of a fork. The view must be folded anew from the timeline, which Tracker does.
var ErrTimelineMoved = errdefs.New(errdefs.Internal, "timeline_moved", "the timeline moved; the view must be folded from it anew")

// Fold returns the state after e. The argument is not changed. It fails with ErrTimelineMoved as said there, and with
// log_corrupt when e does not follow the events folded so far.
func Fold(st State, e event.Event) (State, error) {
	cut, moves, err := cutOf(e)
	if err != nil {
		return st, err
	}
	if moves && st.View.Position() != cut {
		return st, ErrTimelineMoved
	}
	next := st
	if next.Summary, err = FoldSummary(st.Summary, e); err != nil {
		return st, err
	}
	if next.Facts, err = FoldFacts(st.Facts, e); err != nil {
		return st, err
	}
	if next.View, err = FoldView(st.View, e); err != nil {
		return st, err
	}
	return next, nil
}

// cutOf returns the place where the timeline goes on before e, if e moves it.
func cutOf(e event.Event) (cut Position, moves bool, err error) {
	switch e.Type {
	case event.SessionRolledBack:
		d, err := event.DecodeData[event.SessionRolledBackData](e)
		if err == nil && d.CutSession == e.SessionID && d.CutSeq >= e.Seq {
			err = corrupt(e, "it rolls back to %d, which is not before it", d.CutSeq)
		}
		return Position{Session: d.CutSession, Seq: d.CutSeq}, true, err
	case event.SessionImported:
		d, err := event.DecodeData[event.SessionImportedData](e)
		if err == nil && (d.CutSession != e.SessionID || d.CutSeq >= e.Seq || d.CutSeq == 0) {
			err = corrupt(e, "its cut is not before it")
		}
		return Position{Session: d.CutSession, Seq: d.CutSeq}, true, err
	case event.SessionCreated:
		d, err := event.DecodeData[event.SessionCreatedData](e)
		if err == nil && d.Fork != nil {
			if d.Fork.ParentID == e.SessionID {
				err = corrupt(e, "it names itself as its parent")
			}
			return Position{Session: d.Fork.ParentID, Seq: d.Fork.CutSeq}, true, err
		}
		return Position{}, false, err
	}
	return Position{}, false, nil
}

func corrupt(e event.Event, format string, args ...any) error {
	err := errdefs.New(errdefs.Corrupt, event.CodeLogCorrupt, format, args...)
	err.Message = "event " + string(e.ID) + " (" + string(e.Type) + ") of session " + string(e.SessionID) + " is wrong: " + err.Message
	return err.WithHint("perdure verify names the first event that does not fit")
}

// FoldFacts returns the facts after e, which may be any event of the session's own log.
func FoldFacts(f Facts, e event.Event) (Facts, error) {
	switch e.Type {
	case event.WorkspaceStarted, event.WorkspacePaused, event.WorkspaceUnpaused, event.WorkspaceSuspended, event.WorkspaceStopped,
		event.WorkspaceResumed, event.WorkspaceLost, event.SessionConfigured:
	case event.SessionCreated, event.SessionRolledBack, event.SessionImported, event.LimitWarned, event.LimitReached, event.ExecStarted, event.ExecFinished,
		event.CheckpointCreated, event.CheckpointDurable, event.CheckpointFailed, event.CheckpointDeleted:
	default:
		return f, nil
	}
	p, err := event.Decode(e)
	if err != nil {
		return f, err
	}
	f.Life.fold(e, p)
	switch d := p.(type) {
	case *event.SessionConfiguredData:
		// What was said of an age holds no more.
		f.Warned = without(f.Warned, func(name string) bool { return name == LimitExpire })
		f.Reached = without(f.Reached, func(name string) bool { return name == LimitExpire })
	case *event.SessionCreatedData:
		if d.Fork != nil {
			f.LastCheckpoint = d.Fork.CheckpointID
		}
	case *event.SessionRolledBackData:
		f.leave(d.UndoCheckpointID)
	case *event.SessionImportedData:
		f.leave("")
	case *event.LimitData:
		if e.Type == event.LimitWarned {
			f.Warned = addName(f.Warned, d.Limit)
		} else {
			f.Reached = addName(f.Reached, d.Limit)
		}
	case *event.ExecStartedData:
		f.Execs = append(slices.Clip(f.Execs), Exec{ID: d.ExecID, Seq: e.Seq, Started: e.CreatedAt, TTY: d.TTY, Background: d.Background})
	case *event.ExecFinishedData:
		f.Execs = without(f.Execs, func(x Exec) bool { return x.ID == d.ExecID })
	default:
		f.foldCheckpoint(p)
	}
	return f, nil
}

// leave begins another life, from which undo leads back.
func (f *Facts) leave(undo id.Checkpoint) {
	f.Undo = undo
	f.Execs = slices.Clone(f.Execs)
	for i := range f.Execs {
		f.Execs[i].Abandoned = true
	}
}

func (f *Facts) foldCheckpoint(p any) {
	switch d := p.(type) {
	case *event.CheckpointCreatedData:
		f.Checkpoints = append(slices.Clip(f.Checkpoints), Checkpoint{
			ID: d.CheckpointID, Kind: d.Kind, Message: d.Message, CutSeq: d.CutSeq, State: CheckpointWarm, Keep: d.Keep,
		})
		f.LastCheckpoint = d.CheckpointID
	case *event.CheckpointDurableData:
		f.setCheckpoint(d.CheckpointID, CheckpointDurable)
	case *event.CheckpointFailedData:
		f.setCheckpoint(d.CheckpointID, CheckpointFailed)
		f.dropCheckpoint(d.CheckpointID)
	case *event.CheckpointDeletedData:
		f.Checkpoints = without(f.Checkpoints, func(c Checkpoint) bool { return c.ID == d.CheckpointID })
		f.dropCheckpoint(d.CheckpointID)
	}
}

func (f *Facts) setCheckpoint(which id.Checkpoint, to CheckpointState) {
	f.Checkpoints = slices.Clone(f.Checkpoints)
	for i := range f.Checkpoints {
		if f.Checkpoints[i].ID == which {
			f.Checkpoints[i].State = to
		}
	}
}

// dropCheckpoint forgets that which can be restored.
func (f *Facts) dropCheckpoint(which id.Checkpoint) {
	if f.Undo == which {
		f.Undo = ""
	}
	if f.LastCheckpoint != which {
		return
	}
	f.LastCheckpoint = ""
	for _, c := range f.Checkpoints {
		if c.State != CheckpointFailed {
			f.LastCheckpoint = c.ID
		}
	}
}

func addName(list []string, name string) []string {
	if slices.Contains(list, name) {
		return list
	}
	return append(slices.Clip(list), name)
}

// without returns list without the elements that drop names, leaving the argument alone.
func without[T any](list []T, drop func(T) bool) []T {
	var out []T
	for _, x := range list {
		if !drop(x) {
			out = append(out, x)
		}
	}
	return out
}
