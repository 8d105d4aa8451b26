package session

import (
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// ID identifies a session.
type ID = id.Session

// Status says what a session is at.
type Status string

// The statuses.
const (
	StatusIdle     Status = "idle"     // nothing to do until somebody sends a message
	StatusRunning  Status = "running"  // a turn is in progress, or a goal or message waits for one
	StatusFinished Status = "finished" // the agent says that the goal is reached
	StatusFailed   Status = "failed"
	StatusCanceled Status = "canceled"
)

// WorkspaceState says what a session's workspace is at.
type WorkspaceState string

// The workspace states.
const (
	WorkspaceNone      WorkspaceState = "none" // never started
	WorkspaceRunning   WorkspaceState = "running"
	WorkspacePaused    WorkspaceState = "paused"
	WorkspaceSuspended WorkspaceState = "suspended"
	WorkspaceStopped   WorkspaceState = "stopped"
	WorkspaceLost      WorkspaceState = "lost" // the sandbox died; the files are there
)

// Workspace is what the log says about a session's workspace.
type Workspace struct {
	ID        id.Workspace   `json:"id"`
	State     WorkspaceState `json:"state"`
	Driver    string         `json:"driver"`
	SandboxID id.Sandbox     `json:"sandbox_id,omitempty"` // while a sandbox runs it
	// Base is the checkpoint that the workspace descends from: the last one taken, rolled back to, or forked from.
	Base id.Checkpoint `json:"base,omitempty"`
	// Missing is what the machine could not give it when it was started, and why.
	Missing []string `json:"missing,omitempty"`
}

// Summary is the session in one row: a fold over its whole log.
type Summary struct {
	ID         ID                `json:"id"`
	Name       string            `json:"name"`
	Goal       string            `json:"goal,omitempty"`
	Spec       event.Spec        `json:"spec"`
	Status     Status            `json:"status"`
	StopReason string            `json:"stop_reason,omitempty"` // why the last turn ended; see event.TurnFinishedData
	OpenTurn   event.Seq         `json:"open_turn,omitempty"`   // the turn.started event of the turn in progress
	Workspace  Workspace         `json:"workspace"`
	Fork       *event.ForkOrigin `json:"fork,omitempty"`
	Usage      event.Usage       `json:"usage"`
	Steps      int64             `json:"steps,omitempty"` // model calls that were answered
	HeadSeq    event.Seq         `json:"head_seq"`
	HeadHash   string            `json:"head_hash"`
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at"` // of the last event
	// LastActivity is the time of the last event that is work: a message, a turn, the model, a tool, a client's command.
	// Checkpoints and suspends are not, and neither is being read.
	LastActivity time.Time `json:"last_activity"`
}

// FoldSummary returns the summary after e. It fails with log_corrupt when e does not follow the events folded so far.
func FoldSummary(s Summary, e event.Event) (Summary, error) {
	if e.Seq != s.HeadSeq+1 || s.HeadSeq > 0 && e.SessionID != s.ID {
		return s, corrupt(e, "it does not follow event %d of %s", s.HeadSeq, s.ID)
	}
	if (e.Seq == 1) != (e.Type == event.SessionCreated) {
		return s, corrupt(e, "a log starts with session.created and has only one")
	}
	p, err := event.Decode(e)
	if err != nil {
		return s, err
	}
	s.HeadSeq, s.HeadHash, s.UpdatedAt = e.Seq, e.Hash, e.CreatedAt
	if isWork(e.Type) {
		s.LastActivity = e.CreatedAt
	}
	switch d := p.(type) {
	case *event.SessionCreatedData:
		s.create(e, d)
	case *event.CheckpointCreatedData:
		s.Workspace.Base = d.CheckpointID
	case *event.SessionConfiguredData:
		s.Spec.Idle, s.Spec.Ports, s.Spec.Checkpoints = &d.Idle, d.Ports, d.Checkpoints
	case *event.LimitData, *event.CheckpointDurableData, *event.CheckpointFailedData, *event.CheckpointDeletedData, *event.CheckpointMissedData:
	default:
		s.foldWork(e, d)
		s.foldWorkspace(e, d)
	}
	return s, nil
}

func (s *Summary) create(e event.Event, d *event.SessionCreatedData) {
	s.ID, s.Name, s.Goal, s.Spec, s.Fork = e.SessionID, d.Name, d.Goal, d.Spec, d.Fork
	s.CreatedAt = e.CreatedAt
	s.Workspace = Workspace{ID: d.WorkspaceID, State: WorkspaceNone, Driver: d.Spec.Driver}
	s.Status = StatusIdle
	switch {
	case d.Fork != nil:
		s.Workspace.Base = d.Fork.CheckpointID
	case d.Goal != "" && d.Spec.Model != "":
		s.Status = StatusRunning
	}
}

// foldWork follows the agent.
func (s *Summary) foldWork(e event.Event, p any) {
	switch d := p.(type) {
	case *event.MessageUserData:
		// From here on there is something to do, so that whoever waits for the answer does not see the last one's end.
		if s.Spec.Model != "" {
			s.Status = StatusRunning
		}
	case *event.TurnStartedData:
		s.Status, s.StopReason, s.OpenTurn = StatusRunning, "", e.Seq
	case *event.TurnFinishedData:
		s.OpenTurn, s.StopReason = 0, d.Reason
		if s.Status == StatusRunning {
			s.Status = statusAfter(d.Reason)
		}
	case *event.SessionFinishedData:
		s.Status, s.StopReason = StatusFinished, "finished"
	case *event.SessionFailedData:
		s.Status, s.StopReason = StatusFailed, d.Code
	case *event.SessionCanceledData:
		// A turn in progress ends by turn.finished; without one there is nothing to wait for.
		if s.OpenTurn == 0 {
			s.Status, s.StopReason = StatusCanceled, "canceled"
		}
	case *event.SessionRolledBackData:
		s.Status, s.StopReason, s.OpenTurn = StatusIdle, "rolled_back", 0
		s.Workspace.Base = d.CheckpointID
	case *event.SessionImportedData:
		s.Name = d.Name
		s.Status, s.StopReason, s.OpenTurn = StatusIdle, "imported", 0
		w := &s.Workspace
		w.State, w.SandboxID, w.Missing, w.Base = WorkspaceStopped, "", nil, d.CheckpointID
		if d.Memory {
			w.State = WorkspaceSuspended
		}
	case *event.ModelRespondedData:
		s.Usage.Input += d.Usage.Input
		s.Usage.Output += d.Usage.Output
		s.Usage.Cached += d.Usage.Cached
		s.Usage.CostMicros += d.Usage.CostMicros
		s.Steps++
	}
}

func statusAfter(reason string) Status {
	switch reason {
	case "finished":
		return StatusFinished
	case "canceled":
		return StatusCanceled
	case "failed":
		return StatusFailed
	}
	return StatusIdle // answered, interrupted, limit
}

// foldWorkspace follows the computer.
func (s *Summary) foldWorkspace(e event.Event, p any) {
	w := &s.Workspace
	switch d := p.(type) {
	case *event.WorkspaceStartedData:
		w.State, w.SandboxID, w.Driver, w.Missing = WorkspaceRunning, d.SandboxID, d.Driver, d.Missing
	case *event.WorkspaceResumedData:
		w.State, w.SandboxID = WorkspaceRunning, d.SandboxID
	case *event.WorkspacePausedData:
		w.State, w.SandboxID = WorkspacePaused, d.SandboxID
		if e.Type == event.WorkspaceUnpaused {
			w.State = WorkspaceRunning
		}
	case *event.WorkspaceSuspendedData:
		w.State, w.SandboxID = WorkspaceSuspended, ""
		if e.Type == event.WorkspaceStopped {
			w.State = WorkspaceStopped
		}
	case *event.WorkspaceLostData:
		w.State, w.SandboxID = WorkspaceLost, ""
	}
}

// isWork reports whether an event of type t shows that somebody uses the session.
func isWork(t event.Type) bool {
	switch t {
	case event.CheckpointCreated, event.CheckpointDurable, event.CheckpointFailed, event.CheckpointDeleted, event.CheckpointMissed,
		event.WorkspacePaused, event.WorkspaceSuspended, event.WorkspaceStopped, event.WorkspaceLost, event.WorkspaceDevolved,
		event.SessionForked, event.SessionConfigured, event.LimitWarned:
		return false
	}
	return true
}
