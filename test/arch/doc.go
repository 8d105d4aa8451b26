// Package arch holds the tests that keep the structure of this module as docs/architecture.md describes it. Each rule has its reason.
package arch
