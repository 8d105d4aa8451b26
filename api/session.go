package api

import "time"

// The values of Session.Status.
const (
	StatusIdle     = "idle"     // nothing to do: no goal yet, or the last turn is answered, interrupted, at a limit or rolled back
	StatusRunning  = "running"  // a turn is in progress, or one is about to start
	StatusFinished = "finished" // the agent declared its goal reached
	StatusCanceled = "canceled" // the last turn was canceled; a new message goes on
	StatusFailed   = "failed"   // the last turn could not be carried on; a new message tries again
)

// The values of Workspace.State.
const (
	WorkspaceNone      = "none"      // not started yet
	WorkspaceStarting  = "starting"  // a sandbox is being made
	WorkspaceRunning   = "running"   //
	WorkspacePaused    = "paused"    // RAM kept, no CPU
	WorkspaceSuspended = "suspended" // RAM in the store, no memory held
	WorkspaceStopped   = "stopped"   // files only
	WorkspaceLost      = "lost"      // the sandbox died; files and the last checkpoint are there
)

// Session is the unit of work.
type Session struct {
	ID           string        `json:"id"`
	Name         string        `json:"name"`
	Status       string        `json:"status" doc:"idle, running, finished, canceled or failed."`
	StopReason   string        `json:"stop_reason" doc:"Why the last turn ended: answered, finished, canceled, interrupted, limit, rolled_back, or the code of a failure; empty if none did."`
	StopMessage  string        `json:"stop_message,omitempty" doc:"The failure or the limit, for people."`
	StopCode     string        `json:"stop_code,omitempty" doc:"The stable code of the failure."`
	Result       string        `json:"result,omitempty" doc:"What the agent declared as the result of its goal."`
	Goal         string        `json:"goal"`
	Model        string        `json:"model"`
	CreatedAt    time.Time     `json:"created_at"`
	UpdatedAt    time.Time     `json:"updated_at"`
	LastSeq      uint64        `json:"last_seq"`
	Parent       *Parent       `json:"parent" doc:"Where a fork comes from; null if it is none."`
	Workspace    Workspace     `json:"workspace"`
	Usage        Usage         `json:"usage"`
	Limits       Limits        `json:"limits"`
	Idle         Idle          `json:"idle" doc:"What the session says itself about being idle."`
	Checkpoints  Checkpoints   `json:"checkpoints" doc:"What the session says itself about the checkpoints that the runtime takes of it."`
	AwakeMS      int64         `json:"awake_ms,omitempty" doc:"How long it has been awake in all; not in lists."`
	ResumeReport *ResumeReport `json:"resume_report,omitempty" doc:"Of the last resume, rollback or fork."`
	Imported     *Imported     `json:"imported,omitempty" doc:"The archive that it came from, in the answer to an import."`
	Waiting      []Event       `json:"waiting,omitempty" nullable:"false" doc:"Messages that no turn has taken up; not in lists. Those that waited at the cut which a rollback or fork began with start no turn: the next one takes them along."`
}

// Imported says what archive a session came from.
type Imported struct {
	SessionID  string    `json:"session_id" doc:"In the archive. Another one than the session's if that was here already."`
	HeadSeq    uint64    `json:"head_seq" doc:"Of the archive's log."`
	HeadHash   string    `json:"head_hash" doc:"Of the last event of the archive's log, whose chain was verified."`
	Memory     bool      `json:"memory" doc:"Its processes and RAM came with it."`
	ExportedAt time.Time `json:"exported_at"`
}

// ExportSession says what goes into an archive.
type ExportSession struct {
	Checkpoint string // an id, or the message of one; "": the present state
	NoMemory   bool   // files and transcript alone
}

// ImportSession says what is to become of an archive.
type ImportSession struct {
	Name     string // "": the one that it has
	NoMemory bool   // files and transcript alone
}

// ArchiveType is the media type of an archive.
const ArchiveType = "application/vnd.perdure.session+zstd"

// Parent says where a fork comes from.
type Parent struct {
	SessionID    string `json:"session_id"`
	CheckpointID string `json:"checkpoint_id"`
	CutSeq       uint64 `json:"cut_seq" doc:"The fork sees its parent's timeline up to here."`
}

// Workspace is the durable computer of a session.
type Workspace struct {
	ID           string       `json:"id"`
	State        string       `json:"state" doc:"none, starting, running, paused, suspended, stopped or lost."`
	Driver       string       `json:"driver"`
	Image        string       `json:"image" doc:"host, dir:PATH, or a stored image for good: oci:NAME@sha256:DIGEST."`
	SandboxID    string       `json:"sandbox_id" doc:"Empty when no sandbox runs it."`
	CheckpointID string       `json:"checkpoint_id" doc:"The checkpoint that its present state descends from; may be empty."`
	Cause        string       `json:"cause,omitempty" doc:"Why it is lost."`
	Missing      []string     `json:"missing" nullable:"false" doc:"What this machine cannot give it, and why."`
	IdleReasons  []IdleReason `json:"idle_reasons" nullable:"false" doc:"What keeps it from counting as idle; not in lists."`
	IdleSince    *time.Time   `json:"idle_since,omitempty" doc:"When it was last in use, if it has a sandbox and nobody uses it; not in lists."`
	PausesAt     *time.Time   `json:"pauses_at,omitempty" doc:"When it is paused if nobody uses it until then; not in lists."`
	SuspendsAt   *time.Time   `json:"suspends_at,omitempty" doc:"When it is suspended if nobody uses it until then; not in lists."`
}

// IdleReason is one for which a session does not count as idle.
type IdleReason struct {
	Source   string    `json:"source" doc:"turn, model, tool, command, terminal, files, access, port, cpu or operation; more may come."`
	Detail   string    `json:"detail" doc:"For people."`
	Since    time.Time `json:"since"`
	MaySleep bool      `json:"may_sleep" doc:"It waits for somebody or for a time, for which no RAM is needed: it does not keep the workspace awake."`
}

// Idle says what becomes of a session that nobody uses, in milliseconds. Zero means the daemon's default, -1 never.
type Idle struct {
	PauseAfterMS   int64 `json:"pause_after_ms,omitempty" minimum:"-1" doc:"Idle for so long, it gets no processor time; RAM stays."`
	SuspendAfterMS int64 `json:"suspend_after_ms,omitempty" minimum:"-1" doc:"Idle for so long, its RAM goes to the store."`
	ArchiveAfterMS int64 `json:"archive_after_ms,omitempty" minimum:"-1" doc:"Asleep for so long, only the store has its RAM, no file beside it."`
	ExpireAfterMS  int64 `json:"expire_after_ms,omitempty" minimum:"-1" doc:"Awake for so long in all, its work is saved, and it wakes no more until it is given more."`
}

// ConfigureSession changes what can be changed of a session. What is not given stays.
type ConfigureSession struct {
	Idle        *ConfigureIdle        `json:"idle,omitempty"`
	Checkpoints *ConfigureCheckpoints `json:"checkpoints,omitempty"`
}

// Checkpoints says when the runtime takes checkpoints by itself, and which of those it takes stay. Empty and zero mean the daemon's default.
type Checkpoints struct {
	Turns      string   `json:"turns,omitempty" enum:",on,off" doc:"At the end of each turn in which the workspace may have changed."`
	Risky      string   `json:"risky,omitempty" enum:",on,off" doc:"Before calls of tools that may destroy something."`
	RiskyCalls []string `json:"risky_calls,omitempty" doc:"Which those are, in place of the daemon's list: TOOL=EXPRESSION."`
	EveryMS    int64    `json:"every_ms,omitempty" minimum:"-1" doc:"While the workspace runs and may have changed. -1: never."`
	KeepLast   int      `json:"keep_last,omitempty" minimum:"-1" doc:"How many stay of each kind. -1: none."`
	KeepHourly int      `json:"keep_hourly,omitempty" minimum:"-1" doc:"Of how many hours the newest stays. -1: none."`
	KeepDaily  int      `json:"keep_daily,omitempty" minimum:"-1" doc:"Of how many days the newest stays. -1: none."`
}

// ConfigureCheckpoints is Checkpoints, of which what is null stays.
type ConfigureCheckpoints struct {
	Turns      *string   `json:"turns,omitempty" enum:",on,off"`
	Risky      *string   `json:"risky,omitempty" enum:",on,off"`
	RiskyCalls *[]string `json:"risky_calls,omitempty" nullable:"false"`
	EveryMS    *int64    `json:"every_ms,omitempty" minimum:"-1"`
	KeepLast   *int      `json:"keep_last,omitempty" minimum:"-1"`
	KeepHourly *int      `json:"keep_hourly,omitempty" minimum:"-1"`
	KeepDaily  *int      `json:"keep_daily,omitempty" minimum:"-1"`
}

// ConfigureIdle is Idle, of which what is null stays.
type ConfigureIdle struct {
	PauseAfterMS   *int64 `json:"pause_after_ms,omitempty" minimum:"-1"`
	SuspendAfterMS *int64 `json:"suspend_after_ms,omitempty" minimum:"-1"`
	ArchiveAfterMS *int64 `json:"archive_after_ms,omitempty" minimum:"-1"`
	ExpireAfterMS  *int64 `json:"expire_after_ms,omitempty" minimum:"-1"`
}

// Usage counts what a session has used. Cached is a part of Input.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CachedTokens int64 `json:"cached_tokens"`
	CostMicros   int64 `json:"cost_micros" doc:"Millionths of a US dollar, where the price is known."`
	Steps        int64 `json:"steps" doc:"Model calls."`
}

// Limits bound a session. Zero means the daemon's default.
type Limits struct {
	Steps         int   `json:"steps,omitempty" minimum:"0" doc:"Model calls per turn."`
	TotalTokens   int64 `json:"total_tokens,omitempty" minimum:"0" doc:"Input and output, over the session's life."`
	CostMicros    int64 `json:"cost_micros,omitempty" minimum:"0" doc:"Millionths of a US dollar, over the session's life."`
	TurnTimeMS    int64 `json:"turn_time_ms,omitempty" minimum:"0" doc:"Wall time of one turn."`
	MemoryBytes   int64 `json:"memory_bytes,omitempty" minimum:"0" doc:"RAM of the sandbox."`
	DiskBytes     int64 `json:"disk_bytes,omitempty" minimum:"0" doc:"Files above the image."`
	Files         int64 `json:"files,omitempty" minimum:"0" doc:"How many files and directories, above the image."`
	Processes     int   `json:"processes,omitempty" minimum:"0" doc:"Processes and threads in the workspace."`
	OpenFiles     int   `json:"open_files,omitempty" minimum:"0" doc:"Files that each process may have open; 256 at least."`
	SnapshotBytes int64 `json:"snapshot_bytes,omitempty" minimum:"0" doc:"What checkpoints may take: the stored memory images of the session and its forks, and the files that its checkpoints hold."`
	ContextTokens int   `json:"context_tokens,omitempty" minimum:"0" doc:"The model's window, where the provider does not know it."`
}

// CreateSession asks for a session. With a goal it starts to work at once.
type CreateSession struct {
	Name         string      `json:"name,omitempty" pattern:"^([a-z0-9][a-z0-9._-]{0,62})?$" patternDescription:"lower-case letters, digits, '.', '_' and '-', at most 63" doc:"Unique; made up if empty."`
	Goal         string      `json:"goal,omitempty" doc:"The first message."`
	Model        string      `json:"model,omitempty" doc:"provider/model, or scripted:FILE; empty: no agent, or the daemon's default if there is a goal."`
	Instructions string      `json:"instructions,omitempty" doc:"Added to the system prompt."`
	Image        string      `json:"image,omitempty" doc:"host (the default), dir:PATH, or a stored image: NAME, NAME:TAG, NAME@sha256:DIGEST or sha256:DIGEST. oci: before a stored image tells it from the first two."`
	Driver       string      `json:"driver,omitempty" doc:"gvisor (the default) or process."`
	Env          []string    `json:"env,omitempty" doc:"KEY=VALUE, for every process in the workspace."`
	Limits       Limits      `json:"limits,omitempty"`
	Idle         Idle        `json:"idle,omitempty"`
	Checkpoints  Checkpoints `json:"checkpoints,omitempty"`
}

// CancelSession asks the turn in progress to stop. The session stays.
type CancelSession struct {
	Reason string `json:"reason,omitempty"`
}

// WaitSession asks to wait until a session is in one of the states.
type WaitSession struct {
	For       []string `json:"for" minItems:"1" doc:"Values of status, stop_reason or workspace.state; any of them ends the wait. Also: done (status is not running)."`
	TimeoutMS int64    `json:"timeout_ms,omitempty" minimum:"0" doc:"0: no limit."`
}

// States are what can be waited for, besides the code of a failure.
func States() []string {
	return []string{
		WaitDone, StatusIdle, StatusRunning, StatusFinished, StatusCanceled, StatusFailed, "answered", "interrupted", "limit", "rolled_back",
		WorkspaceNone, WorkspacePaused, WorkspaceSuspended, WorkspaceStopped, WorkspaceLost,
	}
}

// WaitDone as a state of WaitSession means that no turn is in progress.
const WaitDone = "done"

// Port is a port that the daemon listens on for a session: whoever connects reaches a port in the workspace, waking it.
type Port struct {
	SessionID string `json:"session_id"`
	Local     uint16 `json:"local" doc:"On the daemon's machine, at 127.0.0.1."`
	Guest     uint16 `json:"guest" doc:"In the workspace, on its loopback."`
	Address   string `json:"address" doc:"What to connect to."`
	Problem   string `json:"problem,omitempty" doc:"Why the daemon does not listen just now."`
}

// ForwardPort asks for a port to be forwarded, until it is removed. The same ports are forwarded once.
type ForwardPort struct {
	Local uint16 `json:"local,omitempty" doc:"0: the daemon chooses."`
	Guest uint16 `json:"guest" minimum:"1"`
}
