package pages

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A source of which an image needs less than one part in weakest is left: its pages are written again, so that the files of a lineage of images
// hold not much more than what the images need. The same is done with the ones needed least when there are more than mostSources.
const (
	weakest     = 4
	mostSources = 64
)

// Saver writes an image of memory. Precopy may be called before the memory stands still, Save for all of it when it does, and then Finish.
type Saver struct {
	dir     string
	sources []Source
	files   []*os.File // of the sources of base, by their indexes; that of fresh is nil
	fresh   int        // index of the source that is being written
	out     *os.File   // its file
	pages   atomic.Int64
	hints   []table // for each memory file
}

// table is where pages of memory are likely to be, sorted by place.
type table []Run

// Begin begins an image in dir. base is one of the same memory that is likely to have most of its pages, or nil. It stays the caller's, and has to stay
// open until Finish or Discard; of its directory nothing is needed: what of it has been deleted everywhere is not shared, nor what lies in another file system.
func Begin(dir string, base *Image) (*Saver, error) {
	s := &Saver{dir: dir}
	if base != nil {
		s.sources = append(s.sources, base.Sources...)
		s.files = base.files
		use := base.worthy()
		for i := range use {
			if use[i] {
				info, err := base.files[i].Stat() // it may have been damaged since
				use[i] = err == nil && info.Size() >= base.Sources[i].Pages*Size && linkFile(base.files[i], filepath.Join(dir, base.Sources[i].Name.File()))
			}
		}
		s.hints = base.tables(use)
	}
	s.fresh = len(s.sources)
	var name Name
	_, _ = rand.Read(name[:]) // never fails
	s.sources = append(s.sources, Source{Name: name})
	var err error
	s.out, err = os.OpenFile(filepath.Join(dir, name.File()), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	return s, err
}

// linkFile gives an open file one more name, if it has any left and the file system can. See linkat(2).
func linkFile(f *os.File, to string) bool {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW) == nil
}

// Dir is where the image is written.
func (s *Saver) Dir() string { return s.dir }

// worthy says of each source whether the image needs enough of it for the next image to share it.
func (im *Image) worthy() []bool {
	need := make([]int64, len(im.Sources))
	for _, r := range im.Runs {
		if r.Source != Zeros {
			need[r.Source] += r.Pages
		}
	}
	left := make([]int, 0, len(need))
	for i, n := range need {
		if im.Sources[i].Name != (Name{}) && n*weakest >= im.Sources[i].Pages && n > 0 {
			left = append(left, i)
		}
	}
	sort.Slice(left, func(i, j int) bool { return need[left[i]] > need[left[j]] })
	use := make([]bool, len(need))
	for _, i := range left[:min(len(left), mostSources)] {
		use[i] = true
	}
	return use
}

// tables returns where the image's pages are, for each memory file, as far as they are in sources that are used.
func (im *Image) tables(use []bool) []table {
	var out []table
	for _, r := range im.Runs {
		if r.Memory == NoPlace || r.Source == Zeros || !use[r.Source] {
			continue
		}
		for len(out) <= r.Memory {
			out = append(out, nil)
		}
		out[r.Memory] = append(out[r.Memory], r)
	}
	for _, t := range out {
		sort.Slice(t, func(i, j int) bool { return t[i].Place < t[j].Place })
	}
	return out
}

// at returns the part of t from page place on, at most count pages: a run, or a gap, whose source is Zeros.
func (t table) at(place, count int64) Run {
	i := sort.Search(len(t), func(i int) bool { return t[i].Place+t[i].Pages > place })
	if i == len(t) || t[i].Place >= place+count {
		return Run{Pages: count, Source: Zeros, Place: place}
	}
	r := t[i]
	if r.Place > place {
		return Run{Pages: r.Place - place, Source: Zeros, Place: place}
	}
	into := place - r.Place
	return Run{Pages: min(r.Pages-into, count), Source: r.Source, At: r.At + into, Memory: r.Memory, Place: place}
}

// appendTo appends to runs what t has of count pages from page place on.
func (t table) appendTo(runs []Run, place, count int64) []Run {
	for count > 0 {
		r := t.at(place, count)
		if r.Source != Zeros {
			runs = join(runs, r)
		}
		place, count = place+r.Pages, count-r.Pages
	}
	return runs
}

func (s *Saver) table(memory int) table {
	if memory < len(s.hints) {
		return s.hints[memory]
	}
	return nil
}

// batch is how many bytes are read and compared at once.
const batch = 1 << 20

// Buffers are what one Save works with at a time.
type Buffers struct{ memory, source []byte }

// NewBuffers makes buffers.
func NewBuffers() *Buffers { return &Buffers{make([]byte, batch), make([]byte, batch)} }

var zeroPage [Size]byte

// Save takes pages that stand still into the image: length bytes of the memory file with the given number, from offset on. It returns the runs
// that they are, for Finish. Several may save at once, other pages.
func (s *Saver) Save(b *Buffers, memory int, from io.ReaderAt, offset, length int64) ([]Run, error) {
	var runs []Run
	t := s.table(memory)
	for length > 0 {
		n := min(length, batch)
		if _, err := from.ReadAt(b.memory[:n], offset); err != nil {
			return nil, fmt.Errorf("read memory: %w", err)
		}
		var err error
		if runs, err = s.take(b, runs, memory, t, offset/Size, n/Size); err != nil {
			return nil, err
		}
		offset, length = offset+n, length-n
	}
	return runs, nil
}

// take appends the runs for count pages of b.memory, which are those of memory from place on.
func (s *Saver) take(b *Buffers, runs []Run, memory int, t table, place, count int64) ([]Run, error) {
	for done := int64(0); done < count; {
		hint := t.at(place+done, count-done)
		data := b.memory[done*Size : (done+hint.Pages)*Size]
		was := b.source[:len(data)]
		if hint.Source != Zeros {
			if err := s.readSource(hint, was); err != nil && hint.Source == s.fresh {
				return nil, err
			} else if err != nil { // it has been damaged since: what it had is written again
				hint.Source = Zeros
			}
		}
		if hint.Source != Zeros && bytes.Equal(data, was) {
			hint.Memory = memory
			runs = join(runs, hint)
			done += hint.Pages
			continue
		}
		for first := int64(0); first < hint.Pages; {
			kind, n := alike(data[first*Size:], was[first*Size:], hint.Source != Zeros)
			r := Run{Pages: n, Source: Zeros, Memory: memory, Place: place + done + first}
			switch kind {
			case same:
				r.Source, r.At = hint.Source, hint.At+first
			case other:
				r.Source = s.fresh
				if hint.Source == s.fresh { // copied ahead, and changed since: nobody else has that yet
					r.At = hint.At + first
				} else {
					r.At = s.pages.Add(n) - n
				}
				if _, err := s.out.WriteAt(data[first*Size:(first+n)*Size], r.At*Size); err != nil {
					return nil, err
				}
			}
			runs = join(runs, r)
			first += n
		}
		done += hint.Pages
	}
	return runs, nil
}

func (s *Saver) readSource(r Run, into []byte) error {
	f := s.out
	if r.Source != s.fresh {
		f = s.files[r.Source]
	}
	if _, err := f.ReadAt(into, r.At*Size); err != nil {
		return fmt.Errorf("read the image before: %w", err)
	}
	return nil
}

type likeness int

const (
	zero  likeness = iota // all zeros
	same                  // as before
	other                 // to be written
)

// alike says what the first pages of data are, and how many are so. was is the same pages as they were, if known.
func alike(data, was []byte, known bool) (likeness, int64) {
	of := func(i int) likeness {
		page := data[i : i+Size]
		switch {
		case known && bytes.Equal(page, was[i:i+Size]):
			return same
		case bytes.Equal(page, zeroPage[:]):
			return zero
		}
		return other
	}
	first, n := of(0), Size
	for n < len(data) && of(n) == first {
		n += Size
	}
	return first, int64(n / Size)
}

// Precopy reads memory that is still in use, and writes what differs from the base, so that Save has to write only what changes from now on. It
// returns how many bytes it wrote. Nothing else runs meanwhile. What it fails at, Save does.
func (s *Saver) Precopy(ctx context.Context, memory int, from *os.File) (int64, error) {
	before := s.pages.Load()
	b, t := NewBuffers(), s.table(memory)
	var next table
	seen := int64(0) // the page up to which next is made
	err := eachData(from, func(offset, length int64) error {
		next = t.appendTo(next, seen, offset/Size-seen)
		seen = (offset + length) / Size
		for length > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := min(length, batch)
			if got, err := from.ReadAt(b.memory[:n], offset); errors.Is(err, io.EOF) { // it has been shortened
				n, length = int64(got)/Size*Size, 0
			} else if err != nil {
				return err
			}
			runs, err := s.take(b, nil, memory, t, offset/Size, n/Size)
			if err != nil {
				return err
			}
			for _, r := range runs {
				if r.Source != Zeros {
					next = join(next, r)
				} else { // perhaps it is yet to come, where a sandbox has just been restored
					next = t.appendTo(next, r.Place, r.Pages)
				}
			}
			offset, length = offset+n, length-n
		}
		return nil
	})
	next = t.appendTo(next, seen, maxPages-seen)
	if err == nil { // else the old one is right still: what has been written is only wasted
		for len(s.hints) <= memory {
			s.hints = append(s.hints, nil)
		}
		s.hints[memory] = next
	}
	return (s.pages.Load() - before) * Size, err
}

// eachData calls f for the parts of a file in memory that are no holes, in whole pages. See lseek(2).
func eachData(f *os.File, call func(offset, length int64) error) error {
	for at := int64(0); ; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for data in memory: %w", err)
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("look for a hole in memory: %w", err)
		}
		start = start / Size * Size
		if end = end / Size * Size; end > start {
			if err := call(start, end-start); err != nil {
				return err
			}
		}
		at = max(end, start+Size)
	}
}

// Finish writes the map, with runs in the order of the stream. The image is whole then, but not on stable storage.
func (s *Saver) Finish(runs []Run) (*Image, error) {
	defer s.Discard()
	s.sources[s.fresh].Pages = s.pages.Load()
	m := s.trim(runs)
	for _, src := range s.sources { // those that turned out not to be needed
		if slices.Contains(m.Sources, src) {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, src.Name.File())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, MapName), m.encode(), 0o600); err != nil {
		return nil, err
	}
	return Open(s.dir)
}

// trim makes the map of runs, with the sources that they need.
func (s *Saver) trim(runs []Run) Map {
	index := make([]int, len(s.sources)) // in the map, + 1
	var m Map
	for _, r := range runs {
		if r.Source != Zeros {
			if index[r.Source] == 0 {
				m.Sources = append(m.Sources, s.sources[r.Source])
				index[r.Source] = len(m.Sources)
			}
			r.Source = index[r.Source] - 1
		}
		m.Runs = join(m.Runs, r)
	}
	return m
}

// Discard gives the image up. The files that it has written in its directory stay. After Finish it does nothing.
func (s *Saver) Discard() { _ = s.out.Close() } // written files are synced by whoever keeps the image
