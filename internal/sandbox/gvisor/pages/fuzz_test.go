package pages

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"testing"
)

func someMap(rnd *rand.Rand) Map {
	m := Map{Sources: []Source{}, Runs: []Run{}}
	for i := range rnd.IntN(5) {
		m.Sources = append(m.Sources, Source{Name{byte(i), 7}, 1 + rnd.Int64N(1<<20)})
	}
	for range rnd.IntN(40) {
		r := Run{Pages: 1 + rnd.Int64N(1000), Source: rnd.IntN(len(m.Sources)+1) - 1, Memory: rnd.IntN(4) - 1, Place: rnd.Int64N(1 << 30)}
		if r.Source != Zeros {
			r.Pages = min(r.Pages, m.Sources[r.Source].Pages)
			r.At = rnd.Int64N(m.Sources[r.Source].Pages - r.Pages + 1)
		}
		m.Runs = append(m.Runs, r)
	}
	return m
}

func TestMapsAreReadAsWritten(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		want := someMap(rnd)
		got, err := decode(want.encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v (%v)\nis read as\n%+v", want, err, got)
		}
	}
}

// FuzzMap reads maps whose checksum is right, and checks that what is accepted is sound.
func FuzzMap(f *testing.F) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		b := someMap(rnd).encode()
		f.Add(b[len(magic) : len(b)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte(magic), body...)
		m, err := decode(binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
		if err != nil {
			return
		}
		for _, r := range m.Runs {
			if r.Pages <= 0 || r.Source != Zeros && (r.At < 0 || r.At+r.Pages > m.Sources[r.Source].Pages) {
				t.Fatalf("%+v lies outside its source", r)
			}
		}
		again, err := decode(m.encode())
		if err != nil || !bytes.Equal(again.encode(), m.encode()) {
			t.Fatalf("what is written of it is not what was read: %v", err)
		}
	})
}
