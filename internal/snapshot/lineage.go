package snapshot

import (
	"context"
	"crypto/cipher"
	"encoding/hex"
	"strings"
	"sync"

	"perdure.dev/perdure/internal/errdefs"
)

// pack is an object with chunks.
type pack struct {
	object string
	size   int64
	cipher cipher.AEAD
	chunks int // of its table
	// pins counts the drafts that wrote it or found a chunk in it. pinned is the Collect that was the newest when that happened last.
	pins, pinned int
}

// place is where a chunk is.
type place struct {
	*pack
	record
}

// lineage is the table of a lineage's chunks, in memory as long as somebody uses it.
type lineage struct {
	name    Lineage
	store   *Store
	secrets *secrets
	key     Key

	collecting sync.Mutex // one Collect or Repair at a time; before mu

	mu      sync.Mutex // guards what follows; never held over input or output
	chunks  map[ID]place
	packs   map[string]*pack
	damaged []string // packs whose table cannot be read
	round   int      // Collects so far
	reading map[*Snapshot]struct{}
}

func (l *lineage) prefix(of string) string { return string(l.name) + "/" + of + "/" }

// load reads the tables of all packs.
func (l *lineage) load(ctx context.Context) error {
	for o, err := range l.store.bucket.List(ctx, l.prefix("packs")) {
		if err != nil {
			return err
		}
		records, err := readTable(ctx, l.store.bucket, l.secrets, o)
		if isCode(err, CodeCorrupt) {
			l.damaged = append(l.damaged, o.Name)
			continue
		} else if err != nil {
			return err
		}
		p, err := l.newPack(o)
		if err != nil {
			l.damaged = append(l.damaged, o.Name)
			continue
		}
		l.enter(p, records)
	}
	return nil
}

func (l *lineage) newPack(o Object) (*pack, error) {
	name, err := hex.DecodeString(strings.TrimPrefix(o.Name, l.prefix("packs")))
	if err != nil || len(name) != packNameSize {
		return nil, corrupt("%s is no name of a pack", o.Name)
	}
	return &pack{object: o.Name, size: o.Size, cipher: l.secrets.aead(contextPack, name)}, nil
}

// enter makes a pack's chunks known. The caller holds mu, or has l for itself.
func (l *lineage) enter(p *pack, records []record) {
	p.chunks = len(records)
	l.packs[p.object] = p
	for _, r := range records {
		l.chunks[r.id] = place{p, r}
	}
}

// find returns where a chunk is.
func (l *lineage) find(id ID) (place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.chunks[id]
	return at, ok
}

// pin is find, and keeps the pack for the draft.
func (l *lineage) pin(d *Draft, id ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.chunks[id]
	if ok {
		l.hold(d, at.pack)
	}
	return ok
}

// hold pins a pack; the caller holds mu.
func (l *lineage) hold(d *Draft, p *pack) {
	p.pinned = l.round
	if _, held := d.pins[p]; !held {
		d.pins[p] = struct{}{}
		p.pins++
	}
}

// publish makes known what a draft has stored.
func (l *lineage) publish(d *Draft, p *pack, records []record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(p, records)
	l.hold(d, p)
}

func (l *lineage) unpin(d *Draft) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range d.pins {
		p.pinned = l.round
		p.pins--
	}
	clear(d.pins)
}

// read returns a chunk, verified.
func (l *lineage) read(ctx context.Context, k kind, id ID) ([]byte, error) {
	for again := false; ; again = true {
		at, ok := l.find(id)
		if !ok {
			return nil, errdefs.New(errdefs.Corrupt, CodeChunkMissing, "chunk %s of %s is nowhere", id, l.name).
				WithHint("`perdure verify SESSION` says which checkpoints are affected")
		}
		sealed, err := getAll(ctx, l.store.bucket, at.object, int64(at.offset), int64(at.stored))
		if isCode(err, CodeObjectMissing) && !again {
			continue // its pack was rewritten between the two: it has another place now
		} else if err != nil {
			return nil, err
		}
		return l.open(at, k, sealed)
	}
}

// open unseals, decompresses and verifies a chunk. It overwrites sealed.
func (l *lineage) open(at place, k kind, sealed []byte) ([]byte, error) {
	if at.kind() != k {
		return nil, corrupt("chunk %s is of another kind", at.id)
	}
	body, err := at.cipher.Open(sealed[:0], nonce(at.number), sealed, at.id[:])
	if err != nil {
		return nil, corrupt("chunk %s in %s is damaged", at.id, at.object)
	}
	if at.flags&flagCompressed != 0 {
		if body, err = l.store.codecs.dec.DecodeAll(body, make([]byte, 0, at.length)); err != nil {
			return nil, corrupt("chunk %s in %s does not decompress: %v", at.id, at.object, err)
		}
	}
	if len(body) != int(at.length) || l.secrets.id(k, body) != at.id {
		return nil, corrupt("chunk %s in %s holds something else", at.id, at.object)
	}
	return body, nil
}
