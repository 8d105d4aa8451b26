package layer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// indexMagic begins an index file. After it come, as varints of encoding/binary: the time of the scan in nanoseconds, the number of paths, and
// for each path its length, its bytes and the numbers of its stamp.
const indexMagic = "perdure-index-1\n"

// maxPath bounds what is believed of a damaged file, in bytes (PATH_MAX of linux/limits.h).
const maxPath = 4096

// WriteFile stores the index atomically. It is not synced: whoever finds none has to take a whole layer instead of a delta.
func (x Index) WriteFile(name string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".index-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriterSize(f, 1<<18)
	x.encode(w)
	err = w.Flush()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// encode writes the index; w keeps the first error.
func (x Index) encode(w *bufio.Writer) {
	var buf []byte
	buf = append(buf, indexMagic...)
	buf = binary.AppendVarint(buf, x.Taken.UnixNano())
	buf = binary.AppendUvarint(buf, uint64(len(x.Stamps)))
	for path, s := range x.Stamps {
		buf = binary.AppendUvarint(buf, uint64(len(path)))
		buf = append(buf, path...)
		opaque := uint64(0)
		if s.Opaque {
			opaque = 1
		}
		for _, n := range [...]uint64{s.Ino, uint64(s.Mode), uint64(s.UID), uint64(s.GID), s.Rdev, s.Nlink, opaque} {
			buf = binary.AppendUvarint(buf, n)
		}
		for _, n := range [...]int64{s.Size, s.Mtime, s.Ctime} {
			buf = binary.AppendVarint(buf, n)
		}
		w.Write(buf)
		buf = buf[:0]
	}
	w.Write(buf)
}

// ReadIndex reads what WriteFile wrote. It reports false for a missing or damaged file.
func ReadIndex(name string) (Index, bool) {
	f, err := os.Open(name)
	if err != nil {
		return Index{}, false
	}
	defer f.Close()
	x, err := decodeIndex(bufio.NewReaderSize(f, 1<<18))
	return x, err == nil
}

func decodeIndex(r *bufio.Reader) (Index, error) {
	magic := make([]byte, len(indexMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != indexMagic {
		return Index{}, errors.Join(err, errors.New("not an index"))
	}
	d := decoder{r: r}
	x := Index{Taken: time.Unix(0, d.signed()), Stamps: map[string]Stamp{}}
	for n := d.unsigned(); n > 0 && d.err == nil; n-- {
		path := d.text()
		s := Stamp{
			Ino: d.unsigned(), Mode: uint32(d.unsigned()), UID: uint32(d.unsigned()), GID: uint32(d.unsigned()), Rdev: d.unsigned(), Nlink: d.unsigned(),
			Opaque: d.unsigned() == 1, Size: d.signed(), Mtime: d.signed(), Ctime: d.signed(),
		}
		x.Stamps[path] = s
	}
	if d.err == nil {
		if _, err := r.ReadByte(); err != io.EOF {
			d.err = errors.New("there is more than there should be")
		}
	}
	return x, d.err
}

// decoder reads numbers until the first error, and zeros from then on.
type decoder struct {
	r   *bufio.Reader
	err error
}

func (d *decoder) unsigned() (n uint64) {
	if d.err == nil {
		n, d.err = binary.ReadUvarint(d.r)
	}
	return n
}

func (d *decoder) signed() (n int64) {
	if d.err == nil {
		n, d.err = binary.ReadVarint(d.r)
	}
	return n
}

func (d *decoder) text() string {
	n := d.unsigned()
	if n > maxPath && d.err == nil {
		d.err = fmt.Errorf("a path of %d bytes", n)
	}
	if d.err != nil {
		return ""
	}
	b := make([]byte, n)
	_, d.err = io.ReadFull(d.r, b)
	return string(b)
}
