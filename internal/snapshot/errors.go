package snapshot

import (
	"errors"

	"perdure.dev/perdure/internal/errdefs"
)

// Codes of this package's errors.
const (
	CodeNotFound      = "snapshot_not_found"      // no manifest of that name
	CodeCorrupt       = "snapshot_corrupt"        // bytes that are not those that were stored
	CodeChunkMissing  = "snapshot_chunk_missing"  // a manifest names a chunk that is nowhere
	CodeObjectMissing = "snapshot_object_missing" // no object of that name
	CodeKeyMissing    = "snapshot_key_missing"    // a lineage without a key: never made, or destroyed
	CodeBadName       = "snapshot_bad_name"       // a name that no bucket takes
	CodeExists        = "snapshot_exists"         // a name that is taken
)

func corrupt(what string, args ...any) *errdefs.Error {
	return errdefs.New(errdefs.Corrupt, CodeCorrupt, what, args...).
		WithHint("`perdure verify SESSION` says which checkpoints are affected")
}

func isCode(err error, code string) bool {
	var e *errdefs.Error
	return errors.As(err, &e) && e.Code == code
}
