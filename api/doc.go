// Package api holds the wire types of Perdure's HTTP API, version 1.
//
// # Promises
//
//   - Field names are snake_case. A field is only ever added; readers ignore fields that they do not know.
//   - Times are RFC 3339 in UTC. Durations are integers whose name ends in their unit (_ms). Sizes are bytes.
//   - A list is {"data": […], "has_more": false}; data is never null. Ask for the next page with after=<id of the last one>.
//   - An error is a problem of RFC 9457 whose code is stable; its detail and hint are for people. See Problem.
//   - Absent values that a reader must tell from zero are null (exit_code, parent, ended_at).
//
// The types are the wire's own, not the domain's: internal/service translates. openapi.yaml in this directory is generated
// from the running server's configuration and checked in; a test fails when it is stale.
package api

//go:generate go run perdure.dev/perdure/internal/server/openapi -o openapi.yaml

// Version is the version of the API; it is the first segment of every path.
const Version = "v1"
