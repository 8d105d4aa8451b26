// Package scripted is a model provider that answers from a file: a list of turns with matching rules.
//
// It is for tests and demonstrations, of this project and of others; docs/scripted.md describes the file. It keeps no state that matters across
// a restart: which turn answers follows from the conversation alone (and from how often a turn has failed on purpose, which
// is counted in memory).
package scripted
