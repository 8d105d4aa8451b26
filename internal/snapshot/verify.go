package snapshot

import (
	"context"
	"slices"
	"strings"
)

// Report is what Verify found.
type Report struct {
	Packs, Chunks int
	Bytes         int64 // read
	Damaged       []Damage
	Lost          []Loss
}

// Damage is a pack that is not as it was written.
type Damage struct {
	Object string
	Chunks int // that cannot be read; -1 if that is unknown
	Reason string
}

// Loss is a snapshot that cannot be read whole.
type Loss struct {
	Snapshot string
	Stream   string // "" for the manifest
	Reason   string
}

// Verify reads everything that the lineage stores, and says what is damaged and which snapshots that affects. An error means that it could not look.
func (s *Store) Verify(ctx context.Context, name Lineage) (Report, error) {
	l, release, err := s.use(ctx, name, false)
	if err != nil {
		return Report{}, err
	}
	defer release()
	l.collecting.Lock()
	defer l.collecting.Unlock()
	r, _, err := l.verify(ctx)
	return r, err
}

// Repair is Verify, and sets damaged packs aside, under LINEAGE/damaged/, after storing anew what can be read of them. A snapshot that lost something
// stays: what it lost heals as soon as a later snapshot brings the same bytes.
func (s *Store) Repair(ctx context.Context, name Lineage) (Report, error) {
	l, release, err := s.use(ctx, name, false)
	if err != nil {
		return Report{}, err
	}
	defer release()
	l.collecting.Lock()
	defer l.collecting.Unlock()
	r, bad, err := l.verify(ctx)
	if err != nil {
		return r, err
	}
	round, candidates := l.candidates()
	for _, p := range candidates {
		if !slices.ContainsFunc(r.Damaged, func(d Damage) bool { return d.Object == p.object }) {
			continue
		}
		if err := l.salvage(ctx, p, bad); err != nil {
			return r, err
		}
		if !l.drop(p, round) {
			continue // a draft has come to need it: next time
		}
		if err := l.setAside(ctx, p.object); err != nil {
			return r, err
		}
	}
	l.mu.Lock()
	unreadable := l.damaged
	l.damaged = nil
	l.mu.Unlock()
	for _, object := range unreadable {
		if err := l.setAside(ctx, object); err != nil {
			return r, err
		}
	}
	return r, nil
}

// salvage stores the chunks of a pack that are not bad once more.
func (l *lineage) salvage(ctx context.Context, p *pack, bad map[ID]bool) error {
	var good []record
	l.mu.Lock()
	for id, at := range l.chunks {
		if at.pack == p && !bad[id] {
			good = append(good, at.record)
		}
	}
	l.mu.Unlock()
	d := &Draft{l: l, release: func() {}, pins: map[*pack]struct{}{}, mine: map[ID]struct{}{}}
	defer d.Discard()
	if err := d.copy(ctx, good); err != nil {
		return err
	}
	return d.flush(ctx)
}

func (l *lineage) setAside(ctx context.Context, object string) error {
	b, err := readObject(ctx, l.store.bucket, object)
	if isCode(err, CodeObjectMissing) {
		return nil
	} else if err != nil {
		return err
	}
	to := l.prefix("damaged") + strings.TrimPrefix(object, l.prefix("packs"))
	if err := l.store.bucket.Put(ctx, to, b); err != nil {
		return err
	}
	return l.store.bucket.Delete(ctx, object)
}

// verify also returns the chunks that are damaged.
func (l *lineage) verify(ctx context.Context) (Report, map[ID]bool, error) {
	var r Report
	bad := map[ID]bool{}
	l.mu.Lock()
	of := map[*pack][]place{}
	for _, p := range l.packs {
		of[p] = nil
	}
	for _, at := range l.chunks {
		of[at.pack] = append(of[at.pack], at)
	}
	for _, object := range l.damaged {
		r.Damaged = append(r.Damaged, Damage{object, -1, "its table of chunks cannot be read"})
	}
	l.mu.Unlock()
	for p, places := range of {
		if err := l.verifyPack(ctx, p, places, &r, bad); err != nil {
			return r, nil, err
		}
	}
	slices.SortFunc(r.Damaged, func(a, b Damage) int { return strings.Compare(a.Object, b.Object) })
	var names []string
	for name, err := range l.store.Names(ctx, l.name) {
		if err != nil {
			return r, nil, err
		}
		names = append(names, name)
	}
	good := map[ID]bool{} // nodes with all that is below them
	for _, name := range names {
		m, err := l.manifest(ctx, name)
		if isCode(err, CodeNotFound) {
			continue
		} else if isCode(err, CodeCorrupt) {
			r.Lost = append(r.Lost, Loss{name, "", err.Error()})
			continue
		} else if err != nil {
			return r, nil, err
		}
		for _, s := range m.Streams {
			err := l.verifyTree(ctx, s.Ref, bad, good)
			if isCode(err, CodeCorrupt) || isCode(err, CodeChunkMissing) {
				r.Lost = append(r.Lost, Loss{name, s.Name, err.Error()})
			} else if err != nil {
				return r, nil, err
			}
		}
	}
	return r, bad, nil
}

func (l *lineage) verifyPack(ctx context.Context, p *pack, places []place, r *Report, bad map[ID]bool) error {
	b, err := readObject(ctx, l.store.bucket, p.object)
	if isCode(err, CodeObjectMissing) {
		b = nil
	} else if err != nil {
		return err
	}
	r.Packs++
	r.Bytes += int64(len(b))
	d := Damage{Object: p.object}
	for _, at := range places {
		r.Chunks++
		var err error
		if end := int64(at.offset) + int64(at.stored); end > int64(len(b)) {
			err = corrupt("%s ends at byte %d", p.object, len(b))
		} else {
			_, err = l.open(at, at.kind(), slices.Clone(b[at.offset:end]))
		}
		if err != nil {
			bad[at.id] = true
			d.Chunks++
			d.Reason = err.Error()
		}
	}
	if d.Chunks > 0 {
		r.Damaged = append(r.Damaged, d)
	}
	return nil
}

func (l *lineage) verifyTree(ctx context.Context, ref Ref, bad, good map[ID]bool) error {
	check := func(id ID) error {
		if bad[id] {
			return corrupt("chunk %s is damaged", id)
		}
		return nil
	}
	var passed []ID
	err := walker{
		load: func(ctx context.Context, k kind, id ID) ([]byte, error) {
			if err := check(id); err != nil {
				return nil, err
			}
			return l.read(ctx, k, id)
		},
		node: func(id ID) bool {
			passed = append(passed, id)
			return !good[id]
		},
		leaf: func(e entry, _ int64) error {
			if e.id.zero() {
				return nil
			}
			if at, ok := l.find(e.id); !ok {
				_, err := l.read(ctx, pages, e.id)
				return err
			} else if int64(at.length) != e.size || at.kind() != pages {
				return corrupt("chunk %s has %d bytes, and its node says %d", e.id, at.length, e.size)
			}
			return check(e.id)
		},
	}.walk(ctx, ref)
	if err == nil {
		for _, id := range passed {
			good[id] = true
		}
	}
	return err
}
