// Package session turns a session's log into what can be known about it.
//
// There is no other source and no other writer: each value here is a fold over events, so that two readers of one log agree
// and a restarted daemon knows what its predecessor knew.
//
// # Three folds
//
//   - Summary folds over the whole log, abandoned ranges included: name, status, workspace, usage. A store keeps it as the
//     session's row, in the transaction that appends.
//   - Facts folds over the whole log too: checkpoints, commands of clients, limits. A rollback does not undo them.
//   - View folds over the timeline: what the model sees. Pending messages, the turn, open tool calls.
//
// State is the three together.
//
// # The timeline
//
// A log only grows. Rollback appends session.rolled_back, and from then on the timeline is the one that the cut had, followed
// by the events from the rollback on. A fork begins with its parent's timeline at the cut. So a timeline is a list of ranges
// over the logs of a session and its ancestors, and the undo of a rollback needs nothing of its own: it is a rollback to a
// cut that lies behind the abandoned events.
//
// # Copies never drive
//
// What was open at a cut (a turn, a model request, a tool call) belongs to another life. After a rollback and in a fork it
// is still in the view, marked Abandoned, and whoever drives the session closes it with the truth (interrupted or unknown).
// Its result is never collected and it is never run again.
//
// # Concurrency
//
// State, Timeline and their parts are plain values for one goroutine. Tracker is for one goroutine too: the one that drives
// the session.
package session
