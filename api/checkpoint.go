package api

import "time"

// The values of Checkpoint.State.
const (
	CheckpointWarm    = "warm"    // usable on this machine
	CheckpointDurable = "durable" // on stable storage, its memory in the store of images
	CheckpointFailed  = "failed"  // found damaged before it was durable
)

// Checkpoint is a consistent cut through a session: log position, files and, where there were any, processes and RAM.
type Checkpoint struct {
	ID          string    `json:"id"`
	SessionID   string    `json:"session_id"`
	Seq         uint64    `json:"seq" doc:"The log position of the cut."`
	State       string    `json:"state" enum:"warm,durable,failed"`
	Kind        string    `json:"kind" doc:"user, agent, suspend, stop, undo, fork or export."`
	Message     string    `json:"message"`
	Keep        bool      `json:"keep" doc:"Not subject to retention."`
	CreatedAt   time.Time `json:"created_at"`
	Memory      bool      `json:"memory" doc:"Has processes and RAM."`
	MemoryBytes int64     `json:"memory_bytes"`
	FileBytes   int64     `json:"file_bytes" doc:"Of the files that changed since the checkpoint before."`
	PauseMS     float64   `json:"pause_ms" doc:"How long the workspace stood still for it."`
	Layers      []string  `json:"layers" nullable:"false"`
	ParentID    string    `json:"parent_id" doc:"The checkpoint that the workspace descended from; may be empty."`
	Error       string    `json:"error,omitempty" doc:"Why it failed."`
}

// CreateCheckpoint asks for a checkpoint.
type CreateCheckpoint struct {
	Message string `json:"message,omitempty"`
	Keep    bool   `json:"keep,omitempty"`
}

// ForkSession asks for new sessions that start from a checkpoint of another.
type ForkSession struct {
	Checkpoint string `json:"checkpoint,omitempty" doc:"An id, or the message of one; empty: the present state."`
	Count      int    `json:"count,omitempty" minimum:"0" maximum:"256" doc:"0 means 1."`
	Name       string `json:"name,omitempty" pattern:"^([a-z0-9][a-z0-9._-]{0,62})?$" doc:"Of the fork; with a count above 1, -1, -2, … are added."`
}

// RollbackSession asks to bring a session back to one of its checkpoints.
type RollbackSession struct {
	Checkpoint string `json:"checkpoint" minLength:"1" doc:"An id, or the message of one."`
	DryRun     bool   `json:"dry_run,omitempty" doc:"Only say what would change."`
}

// RollbackPlan says what a rollback changes, or with dry_run would change.
type RollbackPlan struct {
	SessionID        string        `json:"session_id"`
	CheckpointID     string        `json:"checkpoint_id"`
	DryRun           bool          `json:"dry_run"`
	CutSeq           uint64        `json:"cut_seq" doc:"The timeline goes back to here."`
	Events           int           `json:"events" doc:"How many leave the timeline. None leaves the log."`
	Messages         []Event       `json:"messages" nullable:"false" doc:"The user's and the agent's messages that leave the timeline."`
	Files            []FileDiff    `json:"files" nullable:"false" doc:"What changes in the files."`
	ProcessesGone    []Process     `json:"processes_gone" nullable:"false" doc:"What runs now and will not."`
	ProcessesBack    bool          `json:"processes_back" doc:"The checkpoint has processes and RAM, which come back."`
	Stays            []string      `json:"stays" nullable:"false" doc:"What is not rolled back, for people."`
	UndoCheckpointID string        `json:"undo_checkpoint_id" doc:"Taken just before; empty for a dry run."`
	ResumeReport     *ResumeReport `json:"resume_report,omitempty"`
}

// RecoverSession asks to bring a session whose stored state is damaged or lost to the newest state that verifies.
type RecoverSession struct {
	From   string `json:"from,omitempty" doc:"Only this checkpoint, by id or message; empty: the newest that verifies."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Only say what would be done."`
}

// RecoverReport says what a session was recovered to, or with dry_run would be.
type RecoverReport struct {
	SessionID        string              `json:"session_id"`
	DryRun           bool                `json:"dry_run"`
	Layers           []string            `json:"layers" nullable:"false" doc:"Which come back: memory, files, transcript."`
	CheckpointID     string              `json:"checkpoint_id" doc:"What comes back; empty: the files as the session left them, or with no files an empty workspace."`
	CutSeq           uint64              `json:"cut_seq" doc:"The timeline goes back to here; 0: it stays as it is."`
	Skipped          []SkippedCheckpoint `json:"skipped" nullable:"false" doc:"What is newer, or was asked for, and cannot be used in full."`
	Events           int                 `json:"events" doc:"How many leave the timeline. None leaves the log."`
	Messages         []Event             `json:"messages" nullable:"false" doc:"The user's and the agent's messages that leave the timeline."`
	Lost             []string            `json:"lost" nullable:"false" doc:"What does not come back, for people."`
	UndoCheckpointID string              `json:"undo_checkpoint_id" doc:"Keeps what was left of the state before; empty: a dry run, or nothing could be kept or had to be."`
	ResumeReport     *ResumeReport       `json:"resume_report,omitempty"`
}

// SkippedCheckpoint is one that cannot be used, and why.
type SkippedCheckpoint struct {
	CheckpointID string    `json:"checkpoint_id"`
	Message      string    `json:"message"`
	CreatedAt    time.Time `json:"created_at"`
	Code         string    `json:"code"`
	Detail       string    `json:"detail"`
}

// ResumeReport says what survived a restore and what was reset.
type ResumeReport struct {
	Layers      []string  `json:"layers" nullable:"false" doc:"Which came back: memory, files, transcript."`
	Processes   int       `json:"processes"`
	ClockStepMS int64     `json:"clock_step_ms" doc:"How long the workspace slept."`
	Reset       []string  `json:"reset" nullable:"false"`
	Lost        []string  `json:"lost" nullable:"false"`
	DurationMS  int64     `json:"duration_ms"`
	Hooks       []HookRun `json:"hooks" nullable:"false" doc:"Programs of the workspace that ran before anything else."`

	Devolved []Devolved `json:"devolved" nullable:"false" doc:"Layers that could not be brought back here."`
}

// HookRun is a program of the workspace that was run before a suspend, or after a resume or fork.
type HookRun struct {
	Occasion   string `json:"occasion" doc:"pre-suspend, post-resume or post-fork."`
	Name       string `json:"name"`
	ExitCode   *int   `json:"exit_code" doc:"null if it did not end by itself."`
	Cause      string `json:"cause,omitempty" doc:"Why there is no exit code, for people."`
	Output     string `json:"output,omitempty" doc:"Its beginning."`
	DurationMS int64  `json:"duration_ms"`
}

// Devolved is a layer of a checkpoint that could not be brought back here: memory, or files.
type Devolved struct {
	CheckpointID string        `json:"checkpoint_id,omitempty"`
	Layer        string        `json:"layer" enum:"memory,files"`
	Code         string        `json:"code" enum:"other_driver,other_arch,other_engine,cpu_features,image_refused,damaged"`
	Reason       string        `json:"reason"`
	Commands     []LostCommand `json:"commands" nullable:"false" doc:"What ran at the checkpoint."`
}

// LostCommand is a command whose process is lost with the memory.
type LostCommand struct {
	ExecID     string   `json:"exec_id"`
	Kind       string   `json:"kind,omitempty"`
	Argv       []string `json:"argv" nullable:"false"`
	Label      string   `json:"label,omitempty"`
	Background bool     `json:"background,omitempty"`
}

// VerifyReport is the outcome of checking a session's log, manifests and stored content.
type VerifyReport struct {
	SessionID   string          `json:"session_id"`
	OK          bool            `json:"ok"`
	Events      uint64          `json:"events" doc:"How many were checked."`
	HeadHash    string          `json:"head_hash"`
	Checkpoints int             `json:"checkpoints" doc:"How many were checked."`
	Bytes       int64           `json:"bytes" doc:"Of stored content that was read and checked."`
	Problems    []VerifyProblem `json:"problems" nullable:"false"`
}

// VerifyProblem is one thing that does not verify.
type VerifyProblem struct {
	Subject string `json:"subject" doc:"An event's or checkpoint's id."`
	Code    string `json:"code"`
	Detail  string `json:"detail"`
}
