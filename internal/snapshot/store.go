package snapshot

import (
	"context"
	"encoding/json"
	"iter"
	"regexp"
	"strings"
	"sync"

	"perdure.dev/perdure/internal/errdefs"
)

// Store keeps snapshots in a bucket. Its methods may be called by many goroutines; one Store at a time may use a bucket.
type Store struct {
	bucket Bucket
	keys   Keys
	codecs codecs
	// workers is how many chunks of one stream are hashed, compressed or read at the same time.
	workers int

	mu       sync.Mutex // guards lineages, and refs of each; before lineage.mu
	lineages map[Lineage]*opening
}

// opening is a lineage whose table is being read, or has been.
type opening struct {
	done chan struct{} // closed when the rest is set
	l    *lineage
	err  error
	refs int
}

// New returns a store. workers bounds the CPUs that one stream takes; less than 1 is taken as 1.
func New(b Bucket, k Keys, workers int) (*Store, error) {
	c, err := newCodecs()
	if err != nil {
		return nil, err
	}
	return &Store{bucket: b, keys: k, codecs: c, workers: max(1, workers), lineages: map[Lineage]*opening{}}, nil
}

// Stream is a named part of a snapshot, such as a file of a memory image.
type Stream struct {
	Name string `json:"name"`
	Ref
}

// Manifest says what belongs to a snapshot.
type Manifest struct {
	Version int             `json:"version"`
	Name    string          `json:"name"`
	Streams []Stream        `json:"streams"`
	Meta    json.RawMessage `json:"meta,omitempty"` // the caller's
}

// manifestVersion is the newest that this code writes and reads.
const manifestVersion = 1

// Size is the length of all streams, in bytes.
func (m Manifest) Size() (n int64) {
	for _, s := range m.Streams {
		n += s.Size
	}
	return n
}

// Stream returns the ref of a stream; false if there is none of that name.
func (m Manifest) Stream(name string) (Ref, bool) {
	for _, s := range m.Streams {
		if s.Name == name {
			return s.Ref, true
		}
	}
	return Ref{}, false
}

var goodName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,127}$`)

func checkName(what, name string) error {
	if !goodName.MatchString(name) {
		return errdefs.New(errdefs.Invalid, CodeBadName, "%q cannot be the name of a %s", name, what)
	}
	return nil
}

// use returns a lineage with its table read; the caller calls release. With create, it gets a key if it has none.
func (s *Store) use(ctx context.Context, name Lineage, create bool) (*lineage, func(), error) {
	if err := checkName("lineage", string(name)); err != nil {
		return nil, nil, err
	}
	key, err := s.keys.Key(ctx, name, create)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	o, ok := s.lineages[name]
	if !ok {
		o = &opening{done: make(chan struct{})}
		s.lineages[name] = o
	}
	o.refs++
	s.mu.Unlock()
	release := sync.OnceFunc(func() { s.release(name, o) })
	if !ok {
		l := &lineage{name: name, store: s, key: key, secrets: newSecrets(key),
			chunks: map[ID]place{}, packs: map[string]*pack{}, reading: map[*Snapshot]struct{}{}}
		// Others may wait for this, whose contexts have not ended.
		o.l, o.err = l, l.load(context.WithoutCancel(ctx))
		close(o.done)
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		release()
		return nil, nil, context.Cause(ctx)
	}
	if o.err != nil {
		release()
		return nil, nil, o.err
	}
	return o.l, release, nil
}

// release forgets a lineage that nobody uses: what sleeps costs no memory.
func (s *Store) release(name Lineage, o *opening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.refs--; o.refs == 0 && s.lineages[name] == o {
		delete(s.lineages, name)
	}
}

// Names yields the snapshots of a lineage, by name.
func (s *Store) Names(ctx context.Context, l Lineage) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := checkName("lineage", string(l)); err != nil {
			yield("", err)
			return
		}
		prefix := string(l) + "/manifests/"
		for o, err := range s.bucket.List(ctx, prefix) {
			if !yield(strings.TrimPrefix(o.Name, prefix), err) || err != nil {
				return
			}
		}
	}
}

// Delete removes a snapshot. What only it needed stays until Collect. No such snapshot is no error.
func (s *Store) Delete(ctx context.Context, l Lineage, name string) error {
	if err := checkName("lineage", string(l)); err != nil {
		return err
	}
	if err := checkName("snapshot", name); err != nil {
		return err
	}
	return s.bucket.Delete(ctx, manifestObject(l, name))
}

// Destroy deletes a lineage: its key first, then its objects. A draft that is open then does not commit. When Destroy fails after the key is
// gone, Sweep does the rest.
func (s *Store) Destroy(ctx context.Context, name Lineage) error {
	if err := checkName("lineage", string(name)); err != nil {
		return err
	}
	if err := s.keys.Destroy(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.lineages, name) // whoever comes next finds no key, or makes a new one
	s.mu.Unlock()
	return s.deleteAll(ctx, name)
}

func (s *Store) deleteAll(ctx context.Context, name Lineage) error {
	var objects []string
	for o, err := range s.bucket.List(ctx, string(name)+"/") {
		if err != nil {
			return err
		}
		objects = append(objects, o.Name)
	}
	for _, o := range objects {
		if err := s.bucket.Delete(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Sweep destroys the lineages that nobody needs any more, and what is left of those that have no key. It is for a start, before anything else uses the
// store.
func (s *Store) Sweep(ctx context.Context, needed func(Lineage) (bool, error)) error {
	alive := map[string]bool{}
	for l, err := range s.keys.Lineages(ctx) {
		if err != nil {
			return err
		}
		keep, err := needed(l)
		if err != nil {
			return err
		}
		if alive[string(l)] = keep; !keep {
			if err := s.Destroy(ctx, l); err != nil {
				return err
			}
		}
	}
	dead := map[string]bool{}
	for o, err := range s.bucket.List(ctx, "") {
		if err != nil {
			return err
		}
		if l, _, ok := strings.Cut(o.Name, "/"); ok && !alive[l] {
			dead[l] = true
		}
	}
	for l := range dead {
		if err := s.deleteAll(ctx, Lineage(l)); err != nil {
			return err
		}
	}
	return nil
}

// Usage is what a lineage takes.
type Usage struct {
	Snapshots int
	Packs     int
	Chunks    int
	Stored    int64 // bytes of all packs
	Content   int64 // bytes that the chunks hold, each counted once, before compression
	Secret    bool  // there are packs, and they are sealed with a key that is one
}

// Usage measures a lineage.
func (s *Store) Usage(ctx context.Context, name Lineage) (Usage, error) {
	l, release, err := s.use(ctx, name, false)
	if err != nil {
		return Usage{}, err
	}
	defer release()
	var u Usage
	for _, err := range s.Names(ctx, name) {
		if err != nil {
			return Usage{}, err
		}
		u.Snapshots++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u.Packs, u.Chunks = len(l.packs), len(l.chunks)
	u.Secret = u.Packs > 0 && l.key != PublicKey()
	for _, p := range l.packs {
		u.Stored += p.size
	}
	for _, at := range l.chunks {
		u.Content += int64(at.length)
	}
	return u, nil
}
