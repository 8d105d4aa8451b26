// Package agent is the built-in agent loop: it reads the log, asks the model, runs tools, and appends what happened.
//
// # Guarantees
//
//   - The log is the only state. A Run that dies at any point is continued by the next one from the log alone.
//   - Intent before act, result after: tool.started is durable before a tool acts, and carries the exec id that makes starting it
//     idempotent. So no command runs twice, and one that finished while nobody watched is collected.
//   - One model answer is one append: message.agent, model.responded and each tool.requested, or nothing.
//   - Each tool.requested gets exactly one tool.finished, and what is sent to a model always passes model.CheckHistory.
//   - A tool call whose arguments arrived cut is never run.
//   - What was open at a cut is not driven again by a copy: after a fork or a rollback open calls are closed as interrupted, and
//     so is the turn that they were part of.
//   - Cancel and interrupt are events in the log, so they work across restarts too.
//
// # Turns and messages
//
// A turn starts from the goal or from user messages, and ends with an answer without tool calls, with the finish tool, or by a
// cancel, an interrupt, a limit or a failure. Steer messages enter before the next model call, queued ones one per turn.
// The model sees a message where it was taken up, not where it was appended, so that no message parts a call from its result.
package agent
