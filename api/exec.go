package api

import "time"

// Exec is a command in a workspace.
type Exec struct {
	ID         string     `json:"id"`
	SessionID  string     `json:"session_id"`
	State      string     `json:"state" doc:"running, exited or lost."`
	ExitCode   *int       `json:"exit_code" doc:"What the process returned; null while it runs, and when it was killed or lost."`
	Signal     string     `json:"signal" doc:"What ended it, such as SIGKILL; may be empty."`
	Cause      string     `json:"cause" doc:"Why it was lost or could not start; may be empty."`
	TimedOut   bool       `json:"timed_out"`
	Stdout     string     `json:"stdout" doc:"With output=true: what was written, up to max_output bytes. Bytes that are not UTF-8 are replaced."`
	Stderr     string     `json:"stderr"`
	StdoutSize int64      `json:"stdout_size" doc:"Bytes written so far."`
	StderrSize int64      `json:"stderr_size"`
	StdinSize  int64      `json:"stdin_size" doc:"Bytes of input accepted so far."`
	Kind       string     `json:"kind" doc:"process, shell or python."`
	Argv       []string   `json:"argv,omitempty"`
	Code       string     `json:"code,omitempty" doc:"For shell and python."`
	Dir        string     `json:"dir,omitempty"`
	User       string     `json:"user,omitempty" doc:"If another than the workspace's was asked for."`
	TTY        bool       `json:"tty"`
	Background bool       `json:"background"`
	Label      string     `json:"label,omitempty"`
	PID        int        `json:"pid" doc:"Inside the sandbox."`
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at" doc:"Null while it runs."`
}

// The values of Exec.State.
const (
	ExecRunning = "running"
	ExecExited  = "exited"
	ExecLost    = "lost"
)

// StartExec starts a command. Starting an id again answers with the command that has it, running or finished.
type StartExec struct {
	ID          string        `json:"id,omitempty" maxLength:"128" pattern:"^([A-Za-z0-9_-][A-Za-z0-9_.-]*)?$" doc:"Chosen by the client to make the start repeatable; made up if empty."`
	Kind        string        `json:"kind,omitempty" enum:"process,shell,python" default:"process"`
	Argv        []string      `json:"argv,omitempty" doc:"For a process."`
	Code        string        `json:"code,omitempty" doc:"For the persistent shell or Python interpreter."`
	Interpreter string        `json:"interpreter,omitempty" doc:"The name of the persistent interpreter; empty: main."`
	Dir         string        `json:"dir,omitempty" doc:"Empty: the image's working directory, or the user's home directory."`
	User        string        `json:"user,omitempty" maxLength:"256" doc:"NAME or UID, and perhaps :GROUP; empty: the image's user, or root. For a process."`
	Env         []string      `json:"env,omitempty" doc:"KEY=VALUE"`
	TTY         *TerminalSize `json:"tty,omitempty" doc:"Run in a terminal of this size; stdout and stderr are then one stream, stdout."`
	Stdin       bool          `json:"stdin,omitempty" doc:"Keep standard input open; otherwise it is empty."`
	TimeoutMS   int64         `json:"timeout_ms,omitempty" minimum:"0" doc:"Kill the whole process group then; 0: never."`
	Background  bool          `json:"background,omitempty" doc:"A label: it is meant to go on."`
	Label       string        `json:"label,omitempty"`
	Wait        bool          `json:"wait,omitempty" doc:"Answer when the command has ended."`
	Output      bool          `json:"output,omitempty" doc:"Put the output into the answer. Implies wait."`
	MaxOutput   int64         `json:"max_output,omitempty" minimum:"0" maximum:"67108864" doc:"Bytes of each stream at most, the first ones; 0 means 1 MiB."`
}

// TerminalSize is in characters.
type TerminalSize struct {
	Rows uint16 `json:"rows" minimum:"1"`
	Cols uint16 `json:"cols" minimum:"1"`
}

// SignalExec sends a signal to a command's process group.
type SignalExec struct {
	Signal string `json:"signal" minLength:"1" doc:"A name, with or without SIG, or a number."`
}
