package snapshot

import (
	"bytes"
	"context"
	"io"
	"iter"
	"testing"
)

// FuzzNode holds that whatever decodes is encoded to the same bytes.
func FuzzNode(f *testing.F) {
	f.Add(encodeNode([]entry{{ID{1}, 4096}, {ID{}, 1 << 30}}))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, err := decodeNode(b)
		if err == nil && !bytes.Equal(encodeNode(lines), b) {
			t.Errorf("%x", b)
		}
	})
}

// object is a bucket with one object.
type object []byte

func (o object) Get(_ context.Context, _ string, offset, length int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(o), offset, length)), nil
}
func (object) Put(context.Context, string, []byte) error             { return nil }
func (object) Delete(context.Context, string) error                  { return nil }
func (object) List(context.Context, string) iter.Seq2[Object, error] { return nil }

// FuzzPack holds that no bytes make the reading of a table panic, and that only those of a pack are one.
func FuzzPack(f *testing.F) {
	s := newSecrets(Key{1})
	p := newPacker(s, [packNameSize]byte([]byte("a name of a pack")), nil)
	p.add(ID{2}, pages, []byte("some bytes"), 10, false)
	p.add(ID{3}, node, []byte("more"), 4, false)
	good := bytes.Clone(p.finish())
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(packMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := readTable(t.Context(), object(b), s, Object{Name: "lin/packs/x", Size: int64(len(b))})
		// The chunks may be damaged, the rest not.
		if err == nil && len(records) > 0 && !bytes.HasSuffix(b, good[len(good)-40:]) {
			t.Errorf("%d chunks in %x", len(records), b)
		}
	})
}
