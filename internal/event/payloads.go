package event

import (
	"encoding/json"
	"time"

	"perdure.dev/perdure/internal/id"
)

// Spec is what a session is made to be. Only Idle, Ports and Checkpoints change after creation, see SessionConfigured.
type Spec struct {
	Model        string   `json:"model,omitempty"`        // "provider/model", or "scripted:FILE"; empty: no agent
	Instructions string   `json:"instructions,omitempty"` // added to the system prompt
	Image        string   `json:"image"`                  // "host", "dir:PATH", or the pin of a stored image, see package image
	Driver       string   `json:"driver"`
	Env          []string `json:"env,omitempty"` // KEY=VALUE, for every process in the workspace
	Limits       Limits   `json:"limits"`
	Idle         *Idle    `json:"idle,omitempty"` // nil: the daemon's defaults
	Ports        []Port   `json:"ports,omitempty"`
	// Checkpoints is nil where the daemon's defaults hold.
	Checkpoints *Checkpoints `json:"checkpoints,omitempty"`
}

// The values of a switch that may be left to the daemon.
const (
	SwitchOn  = "on"
	SwitchOff = "off"
)

// Checkpoints says when the runtime takes checkpoints by itself, and which of those it takes stay. Zero values mean the daemon's defaults.
type Checkpoints struct {
	Turns      string        `json:"turns,omitempty"`       // a switch: at the end of each turn
	Risky      string        `json:"risky,omitempty"`       // a switch: before calls of tools that may destroy something
	RiskyCalls []string      `json:"risky_calls,omitempty"` // which those are, see package tool
	Every      time.Duration `json:"every_ns,omitempty"`    // while the workspace runs; negative: never
	// Of each kind the newest KeepLast stay; of all together, the newest of each of the last KeepHourly hours and KeepDaily days that have one.
	// Negative: none.
	KeepLast   int `json:"keep_last,omitempty"`
	KeepHourly int `json:"keep_hourly,omitempty"`
	KeepDaily  int `json:"keep_daily,omitempty"`
}

// Port is a forwarded port: whoever connects to Local on the daemon's loopback reaches Guest on the sandbox's.
type Port struct {
	Local uint16 `json:"local"`
	Guest uint16 `json:"guest"`
}

// Idle says what becomes of a session that nobody uses. Zero means the daemon's default, a negative value never.
type Idle struct {
	PauseAfter   time.Duration `json:"pause_after_ns,omitempty"`   // of idleness: no processor time any more, RAM stays
	SuspendAfter time.Duration `json:"suspend_after_ns,omitempty"` // of idleness: RAM goes to the store
	ArchiveAfter time.Duration `json:"archive_after_ns,omitempty"` // of sleep: only the store has its RAM, no file beside it
	ExpireAfter  time.Duration `json:"expire_after_ns,omitempty"`  // awake in all: it is suspended, and wakes no more
}

// Limits bound a session. Zero means the daemon's default; see docs/scope.md for which are enforced by which driver.
type Limits struct {
	Steps       int           `json:"steps,omitempty"`          // model calls per turn
	TotalTokens int64         `json:"total_tokens,omitempty"`   // input + output over the session's life
	CostMicros  int64         `json:"cost_micros,omitempty"`    // millionths of a US dollar over the session's life
	TurnTime    time.Duration `json:"turn_time_ns,omitempty"`   // wall time of one turn
	MemoryBytes int64         `json:"memory_bytes,omitempty"`   // RAM of the sandbox
	DiskBytes   int64         `json:"disk_bytes,omitempty"`     // files above the image
	Files       int64         `json:"files,omitempty"`          // how many, above the image
	Processes   int           `json:"processes,omitempty"`      // inside the sandbox
	OpenFiles   int           `json:"open_files,omitempty"`     // of each process
	Snapshots   int64         `json:"snapshot_bytes,omitempty"` // of memory images in the store, of the session and its forks, and of the session's file layers
	ContextSize int           `json:"context_tokens,omitempty"` // the model's window, when the provider does not know it
}

// ForkOrigin says where a forked session comes from.
type ForkOrigin struct {
	ParentID     id.Session    `json:"parent_id"`
	CheckpointID id.Checkpoint `json:"checkpoint_id"`
	CutSeq       Seq           `json:"cut_seq"` // the child sees the parent's timeline up to here
}

// SessionCreatedData is the payload of SessionCreated.
type SessionCreatedData struct {
	Name        string       `json:"name"`
	Goal        string       `json:"goal,omitempty"`
	WorkspaceID id.Workspace `json:"workspace_id"`
	Spec        Spec         `json:"spec"`
	Fork        *ForkOrigin  `json:"fork,omitempty"`
}

// SessionForkedData is the payload of SessionForked.
type SessionForkedData struct {
	CheckpointID id.Checkpoint `json:"checkpoint_id"`
	Children     []id.Session  `json:"children"`
}

// SessionRolledBackData is the payload of SessionRolledBack. Events in (CutSeq, this event) leave the timeline.
type SessionRolledBackData struct {
	CheckpointID     id.Checkpoint `json:"checkpoint_id"`
	CutSession       id.Session    `json:"cut_session"` // whose log CutSeq counts in: this one, or an ancestor of a fork
	CutSeq           Seq           `json:"cut_seq"`
	UndoCheckpointID id.Checkpoint `json:"undo_checkpoint_id"` // taken just before; rolling back to it is the undo
	Undo             bool          `json:"undo,omitempty"`     // this rollback is itself an undo
}

// SessionConfiguredData is the payload of SessionConfigured: what holds from here on.
type SessionConfiguredData struct {
	Idle        Idle         `json:"idle"`
	Ports       []Port       `json:"ports,omitempty"`
	Checkpoints *Checkpoints `json:"checkpoints,omitempty"`
}

// Configured is the payload that changes nothing of a session.
func (s Spec) Configured() SessionConfiguredData {
	d := SessionConfiguredData{Ports: s.Ports, Checkpoints: s.Checkpoints}
	if s.Idle != nil {
		d.Idle = *s.Idle
	}
	return d
}

// SessionImportedData is the payload of SessionImported: from here on the session lives on this machine. Events in (CutSeq, this event) leave the timeline:
// they tell of what the original did after the cut. What was open at the cut is never driven again, for the original may do that.
type SessionImportedData struct {
	SessionID    id.Session    `json:"session_id"` // in the archive; another one than this if that is here already
	Name         string        `json:"name"`       // from here on
	HeadSeq      Seq           `json:"head_seq"`   // of the archive's log, whose chain was verified
	HeadHash     string        `json:"head_hash"`
	CheckpointID id.Checkpoint `json:"checkpoint_id"` // what it sleeps on
	Original     id.Checkpoint `json:"original_checkpoint_id"`
	CutSession   id.Session    `json:"cut_session"` // whose log CutSeq counts in
	CutSeq       Seq           `json:"cut_seq"`
	Memory       bool          `json:"memory"` // processes and RAM came with it
	ExportedAt   time.Time     `json:"exported_at"`
}

// SessionCanceledData is the payload of SessionCanceled.
type SessionCanceledData struct {
	Reason string `json:"reason,omitempty"`
}

// SessionFinishedData is the payload of SessionFinished. Without done_when a result is unverified.
type SessionFinishedData struct {
	Result   string `json:"result,omitempty"`
	Verified bool   `json:"verified"`
}

// SessionFailedData is the payload of SessionFailed.
type SessionFailedData struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// LimitData is the payload of LimitWarned and LimitReached.
type LimitData struct {
	Limit string `json:"limit"` // the JSON name in Limits
	Used  int64  `json:"used"`
	Max   int64  `json:"max"`
}

// Delivery says how a user message enters a session.
type Delivery string

// The deliveries.
const (
	Steer     Delivery = "steer"     // before the next model call
	Queue     Delivery = "queue"     // as the next turn
	Interrupt Delivery = "interrupt" // stop what is running, then as the next turn
)

// MessageUserData is the payload of MessageUser.
type MessageUserData struct {
	Text     string   `json:"text"`
	Delivery Delivery `json:"delivery"`
}

// ToolCall is the model's request to run a tool.
type ToolCall struct {
	CallID    string          `json:"call_id"` // the model's own id for it, unique in its message
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`     // a JSON object; or a JSON string with what arrived, if Cut
	Cut       bool            `json:"cut,omitempty"` // the arguments arrived incomplete: never run
}

// MessageAgentData is the payload of MessageAgent: one finished answer of the model.
type MessageAgentData struct {
	Text      string     `json:"text,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// Native is the provider's own form of the answer, where it must be sent back unchanged (signed thinking blocks).
	Native json.RawMessage `json:"native,omitempty"`
}

// TurnStartedData is the payload of TurnStarted.
type TurnStartedData struct {
	Messages []Seq `json:"messages"` // the user messages that it answers
}

// TurnFinishedData is the payload of TurnFinished.
type TurnFinishedData struct {
	Reason string `json:"reason"` // answered, finished, canceled, interrupted, limit, failed
}

// ModelRequestedData is the payload of ModelRequested.
type ModelRequestedData struct {
	Model    string `json:"model"`
	Messages int    `json:"messages"` // in the view that was sent
	Attempt  int    `json:"attempt"`  // from 1
}

// Usage counts tokens. Cached is the part of Input that the provider had cached; it is not to be added to Input.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	Cached     int64 `json:"cached,omitempty"`
	CostMicros int64 `json:"cost_micros,omitempty"` // millionths of a US dollar, if known
}

// ModelRespondedData is the payload of ModelResponded.
type ModelRespondedData struct {
	StopReason string `json:"stop_reason"`
	Usage      Usage  `json:"usage"`
	DurationMS int64  `json:"duration_ms"`
}

// ModelFailedData is the payload of ModelFailed: one attempt that gave no answer.
type ModelFailedData struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Retry   bool   `json:"retry"` // another attempt follows
	Delay   int64  `json:"delay_ms,omitempty"`
}

// ContextTrimmedData is the payload of ContextTrimmed: whole turns that the view no longer shows the model.
type ContextTrimmedData struct {
	KeepFrom    Seq        `json:"keep_from"`              // the oldest event that stays in the view (the goal stays always)
	KeepSession id.Session `json:"keep_session,omitempty"` // whose log KeepFrom counts in; empty: this one (else an ancestor of a fork)
	Turns       int        `json:"turns"`                  // dropped by this trim
	Tokens      int64      `json:"tokens"`                 // estimate of what was dropped
}

// ToolRequestedData is the payload of ToolRequested. Its event's id is the exec id of what it starts.
type ToolRequestedData struct {
	ToolCall
}

// ToolStartedData is the payload of ToolStarted: the intent, logged before the act.
type ToolStartedData struct {
	CallID string  `json:"call_id"`
	ExecID id.Exec `json:"exec_id,omitempty"`
}

// Outcome says how a tool call ended.
type Outcome string

// The outcomes.
const (
	OutcomeOK          Outcome = "ok"
	OutcomeError       Outcome = "error" // it ran and failed, or was refused
	OutcomeTimeout     Outcome = "timeout"
	OutcomeCanceled    Outcome = "canceled"
	OutcomeInterrupted Outcome = "interrupted" // it was running when the sandbox died or the timeline moved
	OutcomeUnknown     Outcome = "unknown"     // it may or may not have run
)

// ToolFinishedData is the payload of ToolFinished.
type ToolFinishedData struct {
	CallID     string      `json:"call_id"`
	Outcome    Outcome     `json:"outcome"`
	Output     string      `json:"output"`             // as the model sees it, possibly cut
	Artifact   id.Artifact `json:"artifact,omitempty"` // the whole output, where Output is cut
	ExitCode   *int        `json:"exit_code,omitempty"`
	DurationMS int64       `json:"duration_ms"`
	Collected  bool        `json:"collected,omitempty"` // finished while no daemon ran; its result was collected later
}

// ExecStartedData is the payload of ExecStarted.
type ExecStartedData struct {
	ExecID id.Exec  `json:"exec_id"`
	Argv   []string `json:"argv"`
	TTY    bool     `json:"tty,omitempty"`
	// Background: nobody waits for it, so that it keeps nothing awake by being there.
	Background bool `json:"background,omitempty"`
}

// ExecFinishedData is the payload of ExecFinished.
type ExecFinishedData struct {
	ExecID   id.Exec `json:"exec_id"`
	ExitCode *int    `json:"exit_code"` // null when there is none: killed, lost
	Signal   string  `json:"signal,omitempty"`
	Cause    string  `json:"cause,omitempty"`
}

// CheckpointKind says why a checkpoint was taken.
type CheckpointKind string

// The kinds.
const (
	KindUser    CheckpointKind = "user"
	KindAgent   CheckpointKind = "agent"
	KindSuspend CheckpointKind = "suspend"
	KindStop    CheckpointKind = "stop"
	KindUndo    CheckpointKind = "undo"   // automatic, before a rollback
	KindFork    CheckpointKind = "fork"   // automatic, for a fork of the present state
	KindExport  CheckpointKind = "export" // automatic, for an archive of the present state
	KindTurn    CheckpointKind = "turn"   // automatic, at the end of a turn
	KindRisky   CheckpointKind = "risky"  // automatic, before a call that may destroy something
	KindTimer   CheckpointKind = "timer"  // automatic, by the clock
)

// CheckpointCreatedData is the payload of CheckpointCreated.
type CheckpointCreatedData struct {
	CheckpointID id.Checkpoint  `json:"checkpoint_id"`
	Kind         CheckpointKind `json:"kind"`
	Message      string         `json:"message,omitempty"`
	Keep         bool           `json:"keep,omitempty"` // not subject to retention
	CutSeq       Seq            `json:"cut_seq"`
	ParentID     id.Checkpoint  `json:"parent_id,omitempty"` // the checkpoint that the workspace descends from
	Memory       bool           `json:"memory"`              // has a memory image
	Layers       []id.Layer     `json:"layers"`              // bottom first, above the image
	PauseMS      float64        `json:"pause_ms"`
	MemoryBytes  int64          `json:"memory_bytes"`
	FileBytes    int64          `json:"file_bytes"` // of the new layer
	ManifestHash string         `json:"manifest_hash"`
}

// CheckpointDurableData is the payload of CheckpointDurable.
type CheckpointDurableData struct {
	CheckpointID id.Checkpoint `json:"checkpoint_id"`
}

// CheckpointFailedData is the payload of CheckpointFailed.
type CheckpointFailedData struct {
	CheckpointID id.Checkpoint `json:"checkpoint_id"`
	Code         string        `json:"code"`
	Message      string        `json:"message"`
}

// CheckpointMissedData is the payload of CheckpointMissed.
type CheckpointMissedData struct {
	Kind    CheckpointKind `json:"kind"`
	Code    string         `json:"code"`
	Message string         `json:"message"`
}

// CheckpointDeletedData is the payload of CheckpointDeleted.
type CheckpointDeletedData struct {
	CheckpointID id.Checkpoint `json:"checkpoint_id"`
	Reason       string        `json:"reason"` // asked, retention
}

// WorkspaceStartedData is the payload of WorkspaceStarted: a sandbox runs the workspace.
type WorkspaceStartedData struct {
	SandboxID id.Sandbox `json:"sandbox_id"`
	Driver    string     `json:"driver"`
	Missing   []string   `json:"missing,omitempty"` // what this machine cannot give it, such as "network: no TAP device"
}

// WorkspacePausedData is the payload of WorkspacePaused and WorkspaceUnpaused.
type WorkspacePausedData struct {
	SandboxID id.Sandbox `json:"sandbox_id"`
	Reason    string     `json:"reason,omitempty"` // why the runtime did so by itself, for people; empty: it was asked to
}

// WorkspaceSuspendedData is the payload of WorkspaceSuspended and WorkspaceStopped.
type WorkspaceSuspendedData struct {
	CheckpointID id.Checkpoint `json:"checkpoint_id"`
	Hooks        []HookRun     `json:"hooks,omitempty"`  // of the workspace, that were run before it
	Reason       string        `json:"reason,omitempty"` // why the runtime did so by itself, for people; empty: it was asked to
}

// WorkspaceResumedData is the payload of WorkspaceResumed.
type WorkspaceResumedData struct {
	SandboxID    id.Sandbox    `json:"sandbox_id"`
	CheckpointID id.Checkpoint `json:"checkpoint_id,omitempty"`
	Report       ResumeReport  `json:"report"`
}

// ResumeReport says what survived a restore and what was reset.
type ResumeReport struct {
	Layers      []string  `json:"layers"` // which came back: "memory", "files", "transcript"
	Processes   int       `json:"processes"`
	ClockStepMS int64     `json:"clock_step_ms"` // how long the workspace slept
	Reset       []string  `json:"reset,omitempty"`
	Lost        []string  `json:"lost,omitempty"`
	DurationMS  int64     `json:"duration_ms"`
	Hooks       []HookRun `json:"hooks,omitempty"` // of the workspace, that were run before anything else
	// Devolved is each layer that could not be brought back here, as its own event says.
	Devolved []WorkspaceDevolvedData `json:"devolved,omitempty"`
}

// HookRun is a hook of the workspace that was run.
type HookRun struct {
	Occasion   string `json:"occasion"` // pre-suspend, post-resume, post-fork
	Name       string `json:"name"`     // of its file; empty: what is said is about all of them
	ExitCode   *int   `json:"exit_code"`
	Cause      string `json:"cause,omitempty"`  // why there is no exit code
	Output     string `json:"output,omitempty"` // its beginning
	DurationMS int64  `json:"duration_ms"`
}

// The layers of a session, from the one that is lost most easily.
const (
	LayerMemory     = "memory"
	LayerFiles      = "files"
	LayerTranscript = "transcript"
)

// Why a layer is lost, as in WorkspaceDevolvedData.Code.
const (
	LostToDriver = "other_driver"
	LostToArch   = "other_arch"
	LostToEngine = "other_engine"
	LostToCPU    = "cpu_features"
	LostToFit    = "image_refused" // the engine looked at the image and does not take it here
	LostToDamage = "damaged"       // stored content is missing or has been changed
)

// WorkspaceDevolvedData is the payload of WorkspaceDevolved.
type WorkspaceDevolvedData struct {
	CheckpointID id.Checkpoint `json:"checkpoint_id,omitempty"`
	Layer        string        `json:"layer"`
	Code         string        `json:"code"`
	Reason       string        `json:"reason"`             // for people
	Commands     []LostCommand `json:"commands,omitempty"` // that ran at the checkpoint
}

// LostCommand is a command whose process a workspace has lost.
type LostCommand struct {
	ExecID     id.Exec  `json:"exec_id"`
	Kind       string   `json:"kind,omitempty"` // as in api.Exec
	Argv       []string `json:"argv,omitempty"`
	Label      string   `json:"label,omitempty"`
	Background bool     `json:"background,omitempty"`
}

// WorkspaceLostData is the payload of WorkspaceLost.
type WorkspaceLostData struct {
	SandboxID id.Sandbox `json:"sandbox_id"`
	Cause     string     `json:"cause"`
}
