package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Map says where an image's pages are.
type Map struct {
	Sources []Source
	Runs    []Run // in the order of the stream
}

// Source is a file of pages.
type Source struct {
	Name  Name
	Pages int64
}

// Zeros is the source of pages that hold nothing.
const Zeros = -1

// NoPlace is the memory of runs whose place nobody knows.
const NoPlace = -1

// Run is pages that follow each other in the stream, in a source and in memory.
type Run struct {
	Pages  int64
	Source int   // an index of Map.Sources, or Zeros
	At     int64 // page of the source
	Memory int   // which of the sandbox's memory files, in the order of their saving; or NoPlace
	Place  int64 // page of it
}

// follows says whether next goes on where r ends.
func (r Run) follows(next Run) bool {
	return next.Source == r.Source && next.Memory == r.Memory && (r.Source == Zeros || next.At == r.At+r.Pages) &&
		(r.Memory == NoPlace || next.Place == r.Place+r.Pages)
}

// join appends a run to runs.
func join(runs []Run, next Run) []Run {
	if last := len(runs) - 1; last >= 0 && runs[last].follows(next) {
		runs[last].Pages += next.Pages
		return runs
	}
	return append(runs, next)
}

// The bounds of a map, which may come from a stranger.
const (
	maxSources = 1 << 12
	maxPages   = 1 << 36 // 256 TiB
	maxMemory  = 1 << 16
)

const magic = "perdure pages 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns a map as it is stored: the magic; the number of sources, and for each its name and pages; the number of runs, and for each
// its pages, source + 1, memory + 1, and how far its places in the source and in memory are from where the run before ended; the CRC-32C
// of all that, in four bytes. Numbers are as of encoding/binary's varints.
func (m Map) encode() []byte {
	b := append(make([]byte, 0, len(magic)+32*len(m.Sources)+8*len(m.Runs)+16), magic...)
	b = binary.AppendUvarint(b, uint64(len(m.Sources)))
	for _, s := range m.Sources {
		b = append(b, s.Name[:]...)
		b = binary.AppendUvarint(b, uint64(s.Pages))
	}
	b = binary.AppendUvarint(b, uint64(len(m.Runs)))
	var at, place int64
	for _, r := range m.Runs {
		b = binary.AppendUvarint(b, uint64(r.Pages))
		b = binary.AppendUvarint(b, uint64(r.Source+1))
		b = binary.AppendUvarint(b, uint64(r.Memory+1))
		b = binary.AppendVarint(b, r.At-at)
		b = binary.AppendVarint(b, r.Place-place)
		at, place = r.At+r.Pages, r.Place+r.Pages
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var errMap = errors.New("the map of pages is damaged")

// decode reads a map. What it returns is sound: each run lies within its source, and no number is out of bounds.
func decode(b []byte) (Map, error) {
	var m Map
	if len(b) < len(magic)+4 || string(b[:len(magic)]) != magic {
		return m, fmt.Errorf("%w: it does not begin as one", errMap)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return m, fmt.Errorf("%w: its checksum is another", errMap)
	}
	d := decoder{b: body[len(magic):]}
	sources := d.count(maxSources, len(Name{})+1)
	m.Sources = make([]Source, 0, sources)
	for range sources {
		var s Source
		copy(s.Name[:], d.bytes(len(s.Name)))
		s.Pages = d.number(maxPages)
		m.Sources = append(m.Sources, s)
	}
	runs := d.count(maxPages, 5)
	m.Runs = make([]Run, 0, runs)
	var at, place, total int64
	for range runs {
		r := Run{Pages: d.number(maxPages), Source: int(d.number(maxSources)) - 1, Memory: int(d.number(maxMemory)) - 1}
		r.At, r.Place = at+d.signed(), place+d.signed()
		total += r.Pages
		if d.bad || total > maxPages || !m.sound(r) {
			return Map{}, fmt.Errorf("%w: a run is out of bounds", errMap)
		}
		at, place = r.At+r.Pages, r.Place+r.Pages
		m.Runs = append(m.Runs, r)
	}
	if d.bad || len(d.b) > 0 {
		return Map{}, errMap
	}
	return m, nil
}

func (m Map) sound(r Run) bool {
	if r.Pages <= 0 || r.Source >= len(m.Sources) || r.At < 0 || r.At > maxPages || r.Place < 0 || r.Place > maxPages {
		return false
	}
	return r.Source == Zeros || r.At+r.Pages <= m.Sources[r.Source].Pages
}

// decoder takes numbers off bytes. Once something is wrong it gives zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number(most int64) int64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > uint64(most) {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 || v > maxPages || v < -maxPages {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count is a number of things that take at least size bytes each.
func (d *decoder) count(most int64, size int) int64 {
	return d.number(min(most, int64(len(d.b)/size)))
}

func (d *decoder) bytes(n int) []byte {
	if len(d.b) < n {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}
