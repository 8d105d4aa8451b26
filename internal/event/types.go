package event

// Type names what happened, as {domain}.{action}. The list is closed: a log refuses to append any other type.
type Type string

// The event types. The payload of each is the struct of the same name in payloads.go.
const (
	SessionCreated     Type = "session.created"
	SessionForked      Type = "session.forked"      // in the parent's log
	SessionRolledBack  Type = "session.rolled_back" // moves the timeline; see session.Timeline
	SessionConfigured  Type = "session.configured"  // what can be changed of its spec was changed
	SessionImported    Type = "session.imported"    // from an archive; moves the timeline as a rollback does
	SessionCanceled    Type = "session.canceled"    // the turn in progress was asked to stop
	SessionFinished    Type = "session.finished"
	SessionFailed      Type = "session.failed"
	LimitWarned        Type = "limit.warned"
	LimitReached       Type = "limit.reached"
	MessageUser        Type = "message.user"
	MessageAgent       Type = "message.agent"
	TurnStarted        Type = "turn.started"
	TurnFinished       Type = "turn.finished"
	ModelRequested     Type = "model.requested"
	ModelResponded     Type = "model.responded"
	ModelFailed        Type = "model.failed"
	ContextTrimmed     Type = "context.trimmed"
	ToolRequested      Type = "tool.requested"
	ToolStarted        Type = "tool.started"
	ToolFinished       Type = "tool.finished"
	ExecStarted        Type = "exec.started" // a command that a client started, not the agent
	ExecFinished       Type = "exec.finished"
	CheckpointCreated  Type = "checkpoint.created" // warm: usable on this machine
	CheckpointDurable  Type = "checkpoint.durable"
	CheckpointFailed   Type = "checkpoint.failed"
	CheckpointDeleted  Type = "checkpoint.deleted"
	CheckpointMissed   Type = "checkpoint.missed" // one that the runtime should have taken by itself could not be taken
	WorkspaceStarted   Type = "workspace.started"
	WorkspacePaused    Type = "workspace.paused"
	WorkspaceUnpaused  Type = "workspace.unpaused"
	WorkspaceSuspended Type = "workspace.suspended"
	WorkspaceStopped   Type = "workspace.stopped"
	WorkspaceResumed   Type = "workspace.resumed"  // from a checkpoint or from files; carries the resume report
	WorkspaceLost      Type = "workspace.lost"     // the sandbox died; carries the cause
	WorkspaceDevolved  Type = "workspace.devolved" // a layer of a checkpoint cannot be brought back here; before the workspace.resumed without it
)

// Types lists every type, in the order above.
func Types() []Type {
	return []Type{
		SessionCreated, SessionForked, SessionRolledBack, SessionConfigured, SessionCanceled, SessionFinished, SessionFailed,
		LimitWarned, LimitReached, MessageUser, MessageAgent, TurnStarted, TurnFinished,
		ModelRequested, ModelResponded, ModelFailed, ContextTrimmed, ToolRequested, ToolStarted, ToolFinished,
		ExecStarted, ExecFinished, CheckpointCreated, CheckpointDurable, CheckpointFailed, CheckpointDeleted, CheckpointMissed,
		WorkspaceStarted, WorkspacePaused, WorkspaceUnpaused, WorkspaceSuspended, WorkspaceStopped,
		WorkspaceResumed, WorkspaceLost, WorkspaceDevolved, SessionImported,
	}
}
