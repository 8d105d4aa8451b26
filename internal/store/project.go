package store

import (
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// Changes are what one event changes in the rows beside the session's own (which session.FoldSummary folds).
type Changes struct {
	Insert *Checkpoint // a new checkpoint
	// State, with Checkpoint, sets how far a checkpoint got.
	State                 session.CheckpointState
	Checkpoint            id.Checkpoint
	FailCode, FailMessage string
	// Delete: Checkpoint is gone, and with it its hold on layers.
	Delete bool
	// Layers, if set, are those that the live workspace stands on from now on.
	Layers *[]id.Layer
	// LayersOf, if set, names the checkpoint whose layers the live workspace stands on from now on.
	LayersOf id.Checkpoint
}

// Project returns what e changes. It is pure: rows are folded from events and from nothing else.
func Project(e event.Event) (Changes, error) {
	switch e.Type {
	case event.SessionCreated, event.SessionRolledBack, event.SessionImported,
		event.CheckpointCreated, event.CheckpointDurable, event.CheckpointFailed, event.CheckpointDeleted:
	default:
		return Changes{}, nil
	}
	p, err := event.Decode(e)
	if err != nil {
		return Changes{}, err
	}
	switch d := p.(type) {
	case *event.SessionCreatedData:
		if d.Fork != nil {
			return Changes{LayersOf: d.Fork.CheckpointID}, nil
		}
	case *event.SessionRolledBackData:
		return Changes{LayersOf: d.CheckpointID}, nil
	case *event.SessionImportedData:
		return Changes{LayersOf: d.CheckpointID}, nil
	case *event.CheckpointCreatedData:
		c := created(e, d)
		return Changes{Insert: &c, Layers: &c.Layers}, nil
	case *event.CheckpointDurableData:
		return Changes{Checkpoint: d.CheckpointID, State: session.CheckpointDurable}, nil
	case *event.CheckpointFailedData:
		return Changes{Checkpoint: d.CheckpointID, State: session.CheckpointFailed, FailCode: d.Code, FailMessage: d.Message}, nil
	case *event.CheckpointDeletedData:
		return Changes{Checkpoint: d.CheckpointID, Delete: true}, nil
	}
	return Changes{}, nil
}

func created(e event.Event, d *event.CheckpointCreatedData) Checkpoint {
	layers := d.Layers
	if layers == nil {
		layers = []id.Layer{}
	}
	return Checkpoint{
		ID: d.CheckpointID, SessionID: e.SessionID, Kind: d.Kind, Message: d.Message, Keep: d.Keep, CutSeq: d.CutSeq,
		ParentID: d.ParentID, State: session.CheckpointWarm, Memory: d.Memory, Layers: layers, MemoryBytes: d.MemoryBytes,
		FileBytes: d.FileBytes, PauseMS: d.PauseMS, ManifestHash: d.ManifestHash, CreatedAt: e.CreatedAt,
	}
}
