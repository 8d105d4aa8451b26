package sqlite

import (
	"encoding/json"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func summaryOf(r db.Session) (session.Summary, error) {
	s := session.Summary{
		ID: r.ID, Name: r.Name, Goal: r.Goal, Status: r.Status, StopReason: r.StopReason, OpenTurn: event.Seq(r.OpenTurn),
		Workspace: session.Workspace{
			ID: r.WorkspaceID, State: r.WorkspaceState, Driver: r.Driver, SandboxID: r.SandboxID, Base: r.BaseCheckpointID,
		},
		Usage:   event.Usage{Input: r.UsageInput, Output: r.UsageOutput, Cached: r.UsageCached, CostMicros: r.UsageCostMicros},
		Steps:   r.UsageSteps,
		HeadSeq: event.Seq(r.HeadSeq), HeadHash: r.HeadHash,
		CreatedAt: fromMicros(r.CreatedAt), UpdatedAt: fromMicros(r.UpdatedAt), LastActivity: fromMicros(r.LastActivity),
	}
	if r.ParentID != "" {
		s.Fork = &event.ForkOrigin{ParentID: r.ParentID, CheckpointID: r.ForkCheckpointID, CutSeq: event.Seq(r.ForkCutSeq)}
	}
	if err := json.Unmarshal([]byte(r.Spec), &s.Spec); err != nil {
		return s, corrupt(err)
	}
	if err := json.Unmarshal([]byte(r.WorkspaceMissing), &s.Workspace.Missing); err != nil {
		return s, corrupt(err)
	}
	return s, nil
}

func sessionOf(r db.Session) (store.Session, error) {
	sum, err := summaryOf(r)
	return store.Session{Summary: sum, LeaseOwner: r.LeaseOwner, Lease: event.Generation(r.LeaseGeneration)}, err
}

// missingOf is a list as a column holds it.
func missingOf(s session.Summary) string {
	if len(s.Workspace.Missing) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(s.Workspace.Missing) // strings always can be written
	return string(b)
}

func insertParams(s session.Summary) db.InsertSessionParams {
	spec, _ := json.Marshal(s.Spec) // it came out of JSON
	p := db.InsertSessionParams{
		ID: s.ID, Name: s.Name, Goal: s.Goal, Spec: string(spec), Status: s.Status, StopReason: s.StopReason, OpenTurn: int64(s.OpenTurn),
		WorkspaceID: s.Workspace.ID, WorkspaceState: s.Workspace.State, Driver: s.Workspace.Driver, SandboxID: s.Workspace.SandboxID,
		BaseCheckpointID: s.Workspace.Base, UsageInput: s.Usage.Input, UsageOutput: s.Usage.Output, UsageCached: s.Usage.Cached,
		UsageCostMicros: s.Usage.CostMicros, UsageSteps: s.Steps, WorkspaceMissing: missingOf(s), HeadSeq: int64(s.HeadSeq), HeadHash: s.HeadHash,
		LastActivity: micros(s.LastActivity), CreatedAt: micros(s.CreatedAt), UpdatedAt: micros(s.UpdatedAt),
	}
	if s.Fork != nil {
		p.ParentID, p.ForkCheckpointID, p.ForkCutSeq = s.Fork.ParentID, s.Fork.CheckpointID, int64(s.Fork.CutSeq)
	}
	return p
}

func updateParams(s session.Summary) db.UpdateSessionParams {
	spec, _ := json.Marshal(s.Spec) // it came out of JSON
	return db.UpdateSessionParams{
		ID: s.ID, Spec: string(spec), Status: s.Status, StopReason: s.StopReason, OpenTurn: int64(s.OpenTurn),
		WorkspaceState: s.Workspace.State, Driver: s.Workspace.Driver, SandboxID: s.Workspace.SandboxID, BaseCheckpointID: s.Workspace.Base,
		UsageInput: s.Usage.Input, UsageOutput: s.Usage.Output, UsageCached: s.Usage.Cached, UsageCostMicros: s.Usage.CostMicros, UsageSteps: s.Steps,
		WorkspaceMissing: missingOf(s), HeadSeq: int64(s.HeadSeq), HeadHash: s.HeadHash, LastActivity: micros(s.LastActivity), UpdatedAt: micros(s.UpdatedAt),
	}
}

func eventParams(e event.Event) db.InsertEventParams {
	return db.InsertEventParams{
		SessionID: e.SessionID, Seq: int64(e.Seq), ID: e.ID, Type: e.Type, ActorID: e.ActorID, CreatedAt: micros(e.CreatedAt),
		CausationID: e.CausationID, Data: string(e.Data), Hash: e.Hash,
	}
}

func eventOf(r db.Event) event.Event {
	return event.Event{
		ID: r.ID, Seq: event.Seq(r.Seq), Type: r.Type, SessionID: r.SessionID, ActorID: r.ActorID, CreatedAt: fromMicros(r.CreatedAt),
		CausationID: r.CausationID, Data: json.RawMessage(r.Data), Hash: r.Hash,
	}
}

func checkpointParams(c store.Checkpoint) (db.InsertCheckpointParams, error) {
	layers, err := json.Marshal(c.Layers)
	return db.InsertCheckpointParams{
		ID: c.ID, SessionID: c.SessionID, Kind: c.Kind, Message: c.Message, Keep: number(c.Keep), CutSeq: int64(c.CutSeq),
		ParentID: c.ParentID, State: c.State, Memory: number(c.Memory), Layers: string(layers), MemoryBytes: c.MemoryBytes,
		FileBytes: c.FileBytes, PauseMs: c.PauseMS, ManifestHash: c.ManifestHash, CreatedAt: micros(c.CreatedAt),
	}, err
}

func checkpointOf(r db.Checkpoint) (store.Checkpoint, error) {
	c := store.Checkpoint{
		ID: r.ID, SessionID: r.SessionID, Kind: r.Kind, Message: r.Message, Keep: r.Keep != 0, CutSeq: event.Seq(r.CutSeq),
		ParentID: r.ParentID, State: r.State, Memory: r.Memory != 0, Layers: []id.Layer{}, MemoryBytes: r.MemoryBytes,
		FileBytes: r.FileBytes, PauseMS: r.PauseMs, ManifestHash: r.ManifestHash, FailCode: r.FailCode, FailMessage: r.FailMessage,
		CreatedAt: fromMicros(r.CreatedAt), Deleted: r.Deleted != 0,
	}
	if err := json.Unmarshal([]byte(r.Layers), &c.Layers); err != nil {
		return c, corrupt(err)
	}
	return c, nil
}
