// Package eventtest is the conformance suite for implementations of event.Log, and makes drafts for tests.
package eventtest
