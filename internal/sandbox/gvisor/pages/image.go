package pages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"
)

// Image is an image that is open. Its methods may be called by several at once.
type Image struct {
	Map
	files []*os.File // of the sources
	ends  []int64    // for each run, the page of the stream at which it ends
}

// Open opens the image in dir, one without a map included.
func Open(dir string) (*Image, error) {
	m, names, err := readMap(dir)
	if err != nil {
		return nil, err
	}
	im := &Image{Map: m, ends: make([]int64, len(m.Runs))}
	var end int64
	for i, r := range m.Runs {
		end += r.Pages
		im.ends[i] = end
	}
	for i, name := range names {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, errors.Join(err, im.Close())
		}
		im.files = append(im.files, f)
		info, err := f.Stat()
		if err == nil && (!info.Mode().IsRegular() || info.Size() < m.Sources[i].Pages*Size) {
			err = fmt.Errorf("%s is not the file of pages that the map wants", name)
		}
		if err != nil {
			return nil, errors.Join(err, im.Close())
		}
	}
	return im, nil
}

// readMap returns the map of the image in dir, and the names of the sources' files.
func readMap(dir string) (Map, []string, error) {
	b, err := os.ReadFile(filepath.Join(dir, MapName))
	if errors.Is(err, fs.ErrNotExist) {
		return flatMap(dir)
	}
	if err != nil {
		return Map{}, nil, err
	}
	m, err := decode(b)
	names := make([]string, len(m.Sources))
	for i, s := range m.Sources {
		names[i] = s.Name.File()
	}
	return m, names, err
}

// flatMap returns the map of an image that has none.
func flatMap(dir string) (Map, []string, error) {
	info, err := os.Stat(filepath.Join(dir, flatName))
	if err != nil {
		return Map{}, nil, err
	}
	var m Map
	if n := info.Size() / Size; n > 0 {
		m = Map{Sources: []Source{{Pages: n}}, Runs: []Run{{Pages: n, Memory: NoPlace}}}
	}
	return m, []string{flatName}[:len(m.Sources)], nil
}

// Close closes the image's files.
func (im *Image) Close() error {
	var errs []error
	for _, f := range im.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Bytes is the length of the stream.
func (im *Image) Bytes() int64 {
	if len(im.ends) == 0 {
		return 0
	}
	return im.ends[len(im.ends)-1] * Size
}

// Part is bytes of an image that lie together.
type Part struct {
	Length int64
	File   *os.File // nil: they are zeros
	At     int64    // where in File
}

// Parts calls f for the parts of length bytes of the stream from offset on, one after the other, until f fails or the stream ends. It returns
// how much of the stream the parts were for which f returned.
func (im *Image) Parts(offset, length int64, f func(Part) error) (int64, error) {
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	i := sort.Search(len(im.ends), func(i int) bool { return im.ends[i]*Size > offset })
	var done int64
	for ; done < length && i < len(im.Runs); i++ {
		r := im.Runs[i]
		into := offset + done - (im.ends[i]-r.Pages)*Size
		p := Part{Length: min(length-done, r.Pages*Size-into), At: r.At*Size + into}
		if r.Source != Zeros {
			p.File = im.files[r.Source]
		}
		if err := f(p); err != nil {
			return done, err
		}
		done += p.Length
	}
	return done, nil
}
