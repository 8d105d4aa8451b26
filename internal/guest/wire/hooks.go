package wire

import "time"

// Limits of hooks.
const (
	MaxHooks      = 64      // that are run of an occasion
	MaxHookOutput = 8 << 10 // bytes of the output of one that are kept
)

// HooksArgs go with hooks. See sandbox.Hooks.
type HooksArgs struct {
	Occasion  string
	Env       []string `json:",omitempty"`
	Each, All time.Duration
}

// HooksResult answers hooks.
type HooksResult struct{ Runs []HookRun }

// HookRun is sandbox.HookRun in this language.
type HookRun struct {
	Name     string
	ExitCode *int   `json:",omitempty"`
	Cause    string `json:",omitempty"`
	Output   string `json:",omitempty"`
	Took     time.Duration
}
