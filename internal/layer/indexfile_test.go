package layer

import (
	"bufio"
	"bytes"
	"maps"
	"testing"
)

func FuzzDecodeIndex(f *testing.F) {
	x := Index{Stamps: map[string]Stamp{"a/b": {Ino: 1, Size: 2, Mtime: 3, Ctime: -4, Mode: 5, UID: 6, GID: 7, Rdev: 8, Nlink: 9, Opaque: true}, "c": {}}}
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	x.encode(w)
	w.Flush()
	f.Add(buf.Bytes())
	f.Add(buf.Bytes()[:buf.Len()-3])
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeIndex(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return
		}
		var again bytes.Buffer
		w := bufio.NewWriter(&again)
		got.encode(w)
		w.Flush()
		back, err := decodeIndex(bufio.NewReader(&again))
		if err != nil || !maps.Equal(back.Stamps, got.Stamps) || !back.Taken.Equal(got.Taken) {
			t.Fatalf("%v, %v; want %v", back, err, got)
		}
	})
}
