// Package docs holds the tests that keep what is written about Perdure true: links lead somewhere, commands exist, tests that are named exist, and
// the table of error codes is that of the source.
package docs
