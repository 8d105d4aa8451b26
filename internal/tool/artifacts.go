package tool

import (
	"context"
	"io"

	"perdure.dev/perdure/internal/id"
)

// Artifacts keeps whole outputs where the model sees only a part. The runtime implements it.
type Artifacts interface {
	// Put stores what r yields under a new id and returns the id and the number of bytes. name is for people.
	Put(ctx context.Context, session id.Session, name string, r io.Reader) (id.Artifact, int64, error)
}
