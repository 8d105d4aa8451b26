package tool

import (
	"context"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

type checkpointArgs struct {
	Message string `json:"message"`
}

func checkpointTool() Tool {
	return Tool{
		Class:     ClassCheckpoint,
		NoSandbox: true, // the runtime wakes what it needs
		Spec: model.ToolSpec{
			Name: "checkpoint",
			Description: "Save the whole state of the work (files, processes and memory of the workspace, and this conversation), so that people can return to it or " +
				"fork from it. Take one before something that is hard to undo, and after a good step.",
			Schema: schema(`"message":{"type":"string","description":"what this state is"}`, "message"),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			var a checkpointArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			if env.Checkpoint == nil {
				return Errorf("checkpoints are not available here"), nil
			}
			c, err := env.Checkpoint(ctx, a.Message)
			if err != nil {
				return Result{}, err
			}
			return Checkpointed(c), nil
		},
	}
}

// Checkpointed is the result of a checkpoint call that led to c.
func Checkpointed(c event.CheckpointCreatedData) Result {
	what := "files and conversation"
	if c.Memory {
		what = "files, memory and conversation"
	}
	return ok("checkpoint %s taken (%s)", c.CheckpointID, what)
}

type finishArgs struct {
	Result *string `json:"result"`
}

func finishTool() Tool {
	return Tool{
		Class:     ClassRepeat,
		NoSandbox: true,
		Spec: model.ToolSpec{
			Name:        "finish",
			Description: "Say that the goal is reached. Call it alone, after you have checked your work; result is what the user gets to read.",
			Schema:      schema(`"result":{"type":"string"}`, "result"),
		},
		Run: func(_ context.Context, _ Env, call Call) (Result, error) {
			var a finishArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			if a.Result == nil {
				return Result{}, badArg("result is missing")
			}
			r := ok("finished")
			r.Finish = a.Result
			return r, nil
		},
	}
}
