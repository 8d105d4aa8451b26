// Package tool holds the tools that the model can call: their schemas, and their execution inside a sandbox.
//
// Whatever a model sends, a tool answers with a Result: wrong arguments and failures are told to the model with outcome error,
// never as a Go error or a panic. A Go error from a tool means that the runtime itself could not go on (the context ended,
// the sandbox cannot be reached), and that the call has no result yet.
package tool
