package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/sandbox"
)

// Class says what to do with a call that was started and has no result, because the daemon died.
type Class string

// The classes.
const (
	// ClassExec runs as a command under the call's exec id: ask the sandbox what became of it.
	ClassExec Class = "exec"
	// ClassRepeat may be run again: it changes nothing, or the same thing twice is the same as once.
	ClassRepeat Class = "repeat"
	// ClassOnce must not be repeated blindly: its outcome is unknown, and the model is told to look.
	ClassOnce Class = "once"
	// ClassCheckpoint is a ClassOnce whose trace is in the session's log.
	ClassCheckpoint Class = "checkpoint"
)

// Call is one call of a tool.
type Call struct {
	Exec id.Exec // the id under which it may start a command
	Name string
	Args json.RawMessage
}

// Env is what tools act on.
type Env struct {
	Session    id.Session
	Sandbox    sandbox.Sandbox
	Artifacts  Artifacts
	Checkpoint func(ctx context.Context, message string) (event.CheckpointCreatedData, error)
	Home       string // relative paths count from here; "": from the workspace's own home
	Here       bool   // without a Home, relative paths count from where the workspace's commands start, which need not be its home
	MaxOutput  int    // bytes of output that the model sees; 0: DefaultMaxOutput
}

// DefaultMaxOutput is how many bytes of a tool's output the model sees.
const DefaultMaxOutput = 30_000

func (e Env) maxOutput() int {
	if e.MaxOutput > 0 {
		return e.MaxOutput
	}
	return DefaultMaxOutput
}

// Result is the outcome of a call, as it goes into tool.finished.
type Result struct {
	Outcome  event.Outcome
	Output   string // never empty
	Artifact id.Artifact
	ExitCode *int
	Finish   *string // set by the finish tool: the result of the session's work
}

// Errorf returns a result with outcome error.
func Errorf(format string, args ...any) Result {
	return Result{Outcome: event.OutcomeError, Output: fmt.Sprintf(format, args...)}
}

func ok(format string, args ...any) Result {
	return Result{Outcome: event.OutcomeOK, Output: fmt.Sprintf(format, args...)}
}

// Tool is one tool.
type Tool struct {
	Spec  model.ToolSpec
	Class Class
	// NoSandbox: it works without Env.Sandbox, so that calling it wakes no workspace.
	NoSandbox bool
	// Run does the call. For a ClassExec tool it starts the command or finds it running or finished.
	Run func(ctx context.Context, env Env, call Call) (Result, error)
}

// Set is a list of tools, in the order in which the model is told of them.
type Set []Tool

// Default returns the tools of the built-in agent.
func Default() Set {
	return Set{
		runTool(), pythonTool(), processesTool(),
		readFile(), writeFile(), editFile(), listFiles(),
		checkpointTool(), finishTool(),
	}
}

// Specs returns what a model is told.
func (s Set) Specs() []model.ToolSpec {
	out := make([]model.ToolSpec, len(s))
	for i, t := range s {
		out[i] = t.Spec
	}
	return out
}

// Find returns the tool of a name.
func (s Set) Find(name string) (Tool, bool) {
	for _, t := range s {
		if t.Spec.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// Run does a call. An unknown tool and wrong arguments are results, not errors.
func (s Set) Run(ctx context.Context, env Env, call Call) (Result, error) {
	t, found := s.Find(call.Name)
	if !found {
		names := make([]string, len(s))
		for i, t := range s {
			names[i] = t.Spec.Name
		}
		return Errorf("there is no tool %q; the tools are: %s", call.Name, strings.Join(names, ", ")), nil
	}
	r, err := t.Run(ctx, env, call)
	if err == nil {
		return r, nil
	}
	return failed(ctx, t, err)
}

// failed tells an error to the model, unless the runtime itself was stopped.
func failed(ctx context.Context, t Tool, err error) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, err
	}
	var bad *argError
	if errors.As(err, &bad) {
		return Errorf("wrong arguments for %s: %v", t.Spec.Name, err), nil
	}
	r := Failure(err)
	if errdefs.CodeOf(err) == "sandbox_dead" && t.Class == ClassOnce {
		r.Outcome = event.OutcomeUnknown
		r.Output += "\nThe workspace's sandbox died during the call: it may or may not have had its effect. Look before you repeat it."
	}
	return r, nil
}

// Failure is a result with outcome error that tells err to the model.
func Failure(err error) Result {
	r := Errorf("%s: %v", errdefs.CodeOf(err), err)
	if hint := errdefs.HintOf(err); hint != "" {
		r.Output += " (" + hint + ")"
	}
	return r
}

// argError is an error in what the model sent.
type argError struct{ msg string }

func (e *argError) Error() string { return e.msg }

func badArg(format string, args ...any) error { return &argError{fmt.Sprintf(format, args...)} }

// decode reads arguments strictly: one object, no unknown fields, the right types.
func decode(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badArg("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badArg("there is something behind the JSON object")
	}
	return nil
}

// schema returns the JSON schema of an object; properties is the JSON of its properties.
func schema(properties string, required ...string) json.RawMessage {
	if required == nil {
		required = []string{}
	}
	req, err := json.Marshal(required)
	if err != nil {
		req = []byte("[]")
	}
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":` + string(req) + `,"additionalProperties":false}`)
}
