package snapshot

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/zeebo/blake3"
)

// Bucket is where objects are kept: a directory, or a bucket of a cloud. Names are slash-separated and chosen by this package: lower-case
// letters, digits, '-', '_', '.', '/'. Implementations are safe for use by many goroutines. snapshottest.Run holds one against all this.
type Bucket interface {
	// Put stores an object whole: after it returns, the object survives a crash of the machine; before, or when it fails, a reader finds
	// the old object or none. An object of that name is replaced.
	Put(ctx context.Context, name string, data []byte) error
	// Get returns a reader of length bytes from offset on; length < 0 means up to the end. A range beyond the end gives what there is.
	// No such object is an error of the code snapshot_object_missing.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// List yields the objects whose names begin with prefix, in the order of their names.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object. No such object is no error.
	Delete(ctx context.Context, name string) error
}

// Object is an entry of a list.
type Object struct {
	Name    string
	Size    int64 // bytes
	Changed time.Time
}

// Lineage names those that share chunks: a session and its forks. It is a name that Bucket takes, without a slash.
type Lineage string

// Keys keeps the keys of lineages. They must not be in the bucket: whoever destroys one wants the chunks unreadable, wherever there are copies.
type Keys interface {
	// Key returns a lineage's key. With create, it makes one where there is none, and returns after it survives a crash. No key is an error of the
	// code snapshot_key_missing.
	Key(ctx context.Context, l Lineage, create bool) (Key, error)
	// Destroy forgets a key for ever. No key is no error.
	Destroy(ctx context.Context, l Lineage) error
	// Lineages yields those that have a key.
	Lineages(ctx context.Context) iter.Seq2[Lineage, error]
}

// Key is the secret of a lineage.
type Key [32]byte

// PublicKey is that of lineages whose snapshots are to be no secret: everybody has it. It is the BLAKE3 hash of the text below, and part of the format.
func PublicKey() Key { return blake3.Sum256([]byte("perdure.dev snapshot v1: no secret")) }
