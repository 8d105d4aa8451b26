package snapshot

import (
	"context"
)

// Collected is what a Collect did.
type Collected struct {
	Live      int   // chunks that something needs
	Removed   int   // packs deleted, because nothing in them was needed or what was needed had been moved
	Rewritten int   // packs whose needed chunks were moved
	Freed     int64 // bytes, less what the moved chunks take
}

const (
	smallPack = 1 << 20 // bytes; a pack below is put together with others
	manySmall = 8       // as soon as there are so many
)

// Collect removes what no snapshot of the lineage needs, and puts packs together that are mostly empty. It keeps everything if a manifest or a
// node cannot be read, since it cannot know what that one needs.
func (s *Store) Collect(ctx context.Context, name Lineage) (Collected, error) {
	l, release, err := s.use(ctx, name, false)
	if err != nil {
		return Collected{}, err
	}
	defer release()
	l.collecting.Lock()
	defer l.collecting.Unlock()

	// In this order: whatever is pinned after the candidates were chosen keeps its pack, whatever was committed before is among the manifests.
	round, candidates := l.candidates()
	live, err := l.mark(ctx)
	if err != nil {
		return Collected{}, err
	}
	done := Collected{Live: len(live)}
	dead, moving := l.judge(candidates, live)
	moved, added, err := l.move(ctx, moving)
	if err != nil {
		return done, err
	}
	done.Freed -= added
	for _, p := range append(dead, moved...) {
		if !l.drop(p, round) {
			continue
		}
		if err := s.bucket.Delete(ctx, p.object); err != nil {
			return done, err
		}
		done.Removed++
		done.Freed += p.size
	}
	done.Rewritten = len(moved)
	return done, nil
}

// candidates begins a round, and returns the packs that no draft holds.
func (l *lineage) candidates() (round int, free []*pack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	for _, p := range l.packs {
		if p.pins == 0 {
			free = append(free, p)
		}
	}
	return l.round, free
}

// drop forgets a pack, if nobody has held it since the round began.
func (l *lineage) drop(p *pack, round int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.pins > 0 || p.pinned >= round {
		return false
	}
	delete(l.packs, p.object)
	for id, at := range l.chunks {
		if at.pack == p {
			delete(l.chunks, id)
		}
	}
	return true
}

// mark returns all chunks that snapshots need: those in the bucket, and those that are being read.
func (l *lineage) mark(ctx context.Context) (map[ID]struct{}, error) {
	needed, err := l.manifests(ctx)
	if err != nil {
		return nil, err
	}
	live := map[ID]struct{}{}
	w := walker{
		load: l.read,
		node: func(id ID) bool {
			_, seen := live[id]
			live[id] = struct{}{}
			return !seen
		},
		leaf: func(e entry, _ int64) error {
			if !e.id.zero() {
				live[e.id] = struct{}{}
			}
			return nil
		},
	}
	for _, m := range needed {
		for _, s := range m.Streams {
			if err := w.walk(ctx, s.Ref); err != nil {
				return nil, err
			}
		}
	}
	return live, nil
}

func (l *lineage) manifests(ctx context.Context) ([]Manifest, error) {
	l.mu.Lock()
	var reading []*Snapshot
	for s := range l.reading {
		reading = append(reading, s)
	}
	l.mu.Unlock()
	var all []Manifest
	for _, s := range reading {
		select {
		case <-s.ready:
			all = append(all, s.Manifest)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	for name, err := range l.store.Names(ctx, l.name) {
		if err != nil {
			return nil, err
		}
		m, err := l.manifest(ctx, name)
		if isCode(err, CodeNotFound) {
			continue // deleted since it was listed
		} else if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// remains is a pack and what is needed of it.
type remains struct {
	pack   *pack
	chunks []record
	bytes  int64
}

// judge says which packs go, and which are worth being rewritten: those of which less than half is needed, and small ones if there are many.
func (l *lineage) judge(candidates []*pack, live map[ID]struct{}) (dead []*pack, moving []*remains) {
	of := make(map[*pack]*remains, len(candidates))
	for _, p := range candidates {
		of[p] = &remains{pack: p}
	}
	l.mu.Lock()
	for id := range live {
		at, ok := l.chunks[id]
		if r := of[at.pack]; ok && r != nil {
			r.chunks = append(r.chunks, at.record)
			r.bytes += int64(at.stored)
		}
	}
	l.mu.Unlock()
	var small []*remains
	for _, r := range of {
		switch {
		case len(r.chunks) == 0:
			dead = append(dead, r.pack)
		case r.bytes*2 < r.pack.size:
			moving = append(moving, r)
		case r.pack.size < smallPack:
			small = append(small, r)
		}
	}
	if len(small) >= manySmall {
		moving = append(moving, small...)
	}
	return dead, moving
}

// move stores what is needed of some packs anew, and returns the packs that are not needed any more, and the bytes of the new ones. A pack with a damaged
// chunk stays as it is: that is for Repair.
func (l *lineage) move(ctx context.Context, packs []*remains) (moved []*pack, bytes int64, err error) {
	d := &Draft{l: l, release: func() {}, pins: map[*pack]struct{}{}, mine: map[ID]struct{}{}}
	defer d.Discard()
	for _, r := range packs {
		err := d.copy(ctx, r.chunks)
		if isCode(err, CodeCorrupt) {
			continue
		} else if err != nil {
			return nil, 0, err
		}
		moved = append(moved, r.pack)
	}
	if err := d.flush(ctx); err != nil {
		return nil, 0, err
	}
	return moved, d.added.Stored, nil
}

// copy stores chunks once more. It stores none if one cannot be read.
func (d *Draft) copy(ctx context.Context, chunks []record) error {
	bodies := make([][]byte, len(chunks))
	for i, r := range chunks {
		b, err := d.l.read(ctx, r.kind(), r.id)
		if err != nil {
			return err
		}
		bodies[i] = b
	}
	for i, r := range chunks {
		if err := d.keep(ctx, r.id, r.kind(), bodies[i]); err != nil {
			return err
		}
	}
	return nil
}
