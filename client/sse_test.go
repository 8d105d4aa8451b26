package client

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func decodeAll(s string) (out []message) {
	d := newDecoder(strings.NewReader(s))
	for {
		m, err := d.next()
		if err != nil {
			return out
		}
		out = append(out, m)
	}
}

func TestDecoder(t *testing.T) {
	for _, x := range []struct {
		in   string
		want string // event|id|data of each
	}{
		{"data: a\n\n", "|-|a"},
		{"data: a\r\ndata: b\r\n\r\ndata: c\r\r", "|-|a\nb;|-|c"},
		{": beat\n\nid: 7\ndata: x\n\n", "|7|x"},
		{"event: delta\ndata:x\n\ndata:  y\n\n", "delta|-|x;|-| y"},
		{"data: cut", ""},
		{"data: cut\n", ""},
		{"event: only\n\ndata\n\n", "|-|"},
		{"id: a\x00b\ndata: z\nretry: 5\nnonsense: 1\n\n", "|-|z"},
		{"\n\n\ndata: q\n\n", "|-|q"},
	} {
		var got []string
		for _, m := range decodeAll(x.in) {
			id := "-"
			if m.hasID {
				id = m.id
			}
			got = append(got, m.event+"|"+id+"|"+string(m.data))
		}
		if s := strings.Join(got, ";"); s != x.want {
			t.Errorf("%q decodes to %q, want %q", x.in, s, x.want)
		}
	}
}

// FuzzDecoder checks that nothing panics, that what is decoded can be written and decoded again, and that where the input is cut
// changes nothing but the end.
func FuzzDecoder(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "id: 1\ndata: {}\n\n: c\n\n", "event: x\r\ndata: y\rdata: z\n\r\n", "id\ndata\n\n"} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		all := decodeAll(string(in))
		for _, m := range all {
			var b strings.Builder
			if m.event != "" {
				b.WriteString("event: " + m.event + "\n")
			}
			if m.hasID {
				b.WriteString("id: " + m.id + "\n")
			}
			if m.data != nil {
				for line := range strings.SplitSeq(string(m.data), "\n") {
					b.WriteString("data: " + line + "\n")
				}
			}
			b.WriteString("\n")
			again := decodeAll(b.String())
			if len(again) != 1 || !bytes.Equal(again[0].data, m.data) || again[0].id != m.id || again[0].event != m.event {
				t.Fatalf("%+v is written as %q and read as %+v", m, b.String(), again)
			}
		}
		if cut < 0 || cut > len(in) {
			return
		}
		if part := decodeAll(string(in[:cut])); len(part) > len(all) {
			t.Fatalf("a part of the stream holds more events than the whole")
		}
	})
}

func TestDecoderRefusesEndlessLines(t *testing.T) {
	d := newDecoder(io.MultiReader(strings.NewReader("data: "), endless{}))
	d.max = 1 << 16
	if _, err := d.next(); err == nil {
		t.Error("a line without end was accepted")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
