// Package actor carries the person or service for whom a request is made, and what they may do, along a context.
package actor

import (
	"context"
	"slices"
	"time"

	"perdure.dev/perdure/internal/id"
)

// Role is what an actor may do. Roles are ordered: each may do what the ones before it may.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads
	Approver Role = "approver" // answers actions
	Operator Role = "operator" // works with sessions
	Admin    Role = "admin"    // everything
)

// order is from the least to the most.
func order() []Role { return []Role{Viewer, Approver, Operator, Admin} }

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return slices.Contains(order(), r) }

// Allows reports whether an actor with role r may do what needs the given role. An unknown role allows nothing.
func (r Role) Allows(need Role) bool {
	have, want := slices.Index(order(), r), slices.Index(order(), need)
	return have >= 0 && want >= 0 && have >= want
}

// Actor is a resolved person or service.
type Actor struct {
	ID   id.Actor
	Role Role
	// Request is the idempotency key of the request, unique to the actor and of fixed length; empty if it has none. An id derived from it,
	// of the event that tells what the request did, makes the request's repeat recognisable also after a crash.
	Request string
}

// Local is the owner of the machine, who comes through the Unix socket.
func Local() Actor { return Actor{ID: "local", Role: Admin} }

// RequestLife is how long a Request is remembered: after that its key may stand for another request.
const RequestLife = 48 * time.Hour

type key struct{}

// With returns a context that carries a.
func With(ctx context.Context, a Actor) context.Context { return context.WithValue(ctx, key{}, a) }

// From returns the context's actor, or one that may do nothing.
func From(ctx context.Context) Actor {
	a, _ := ctx.Value(key{}).(Actor)
	return a
}
