package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
)

func TestRoundTrips(t *testing.T) {
	req := Request{ID: 7, Method: MethodExecStdin, Head: []byte(`{"a":1}`), Blob: []byte("blob")}
	rep := Reply{ID: 1 << 60, Head: []byte(`{}`), Blob: []byte{}}
	out := Output{Mark{"exec-1", Stderr, 1 << 40}, []byte("data")}
	var all []byte
	all = AppendRequest(all, req)
	all = AppendReply(all, rep)
	all = AppendOutput(all, out)
	all = AppendMark(all, TypeAck, out.Mark)
	all = AppendU64(all, TypeForget, 9)
	r, buf := bytes.NewReader(all), []byte(nil)
	next := func(want Type) []byte {
		t.Helper()
		got, p, err := ReadFrame(r, &buf)
		if err != nil || got != want {
			t.Fatalf("type %d, %v; want %d", got, err, want)
		}
		return p
	}
	if got, err := ParseRequest(next(TypeRequest)); err != nil || !reflect.DeepEqual(got, req) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := ParseReply(next(TypeReply)); err != nil || !reflect.DeepEqual(got, rep) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := ParseOutput(next(TypeOutput)); err != nil || !reflect.DeepEqual(got, out) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := ParseMark(next(TypeAck)); err != nil || got != out.Mark {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := ParseU64(next(TypeForget)); err != nil || got != 9 {
		t.Errorf("%d %v", got, err)
	}
	if _, _, err := ReadFrame(r, &buf); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestHostileFrames(t *testing.T) {
	var buf []byte
	for name, raw := range map[string][]byte{
		"too long":     {0xff, 0xff, 0xff, 0xff, byte(TypePing)},
		"unknown type": {0, 0, 0, 0, 0xee},
		"type zero":    {0, 0, 0, 0, 0},
	} {
		if _, _, err := ReadFrame(bytes.NewReader(raw), &buf); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A length that is a lie costs no more memory than what comes.
	lie := append([]byte{0, 0xff, 0xff, 0xff, byte(TypePing)}, make([]byte, 100)...)
	if _, _, err := ReadFrame(bytes.NewReader(lie), &buf); !errors.Is(err, io.ErrUnexpectedEOF) || cap(buf) > 4<<20 {
		t.Errorf("%v, %d bytes", err, cap(buf))
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(AppendRequest(nil, Request{ID: 1, Method: "m", Head: []byte("{}"), Blob: []byte("b")}))
	f.Add(AppendOutput(AppendMark(nil, TypeEOF, Mark{"e", Stdout, 3}), Output{Mark{"e", Stdout, 3}, []byte("x")}))
	f.Add(AppendReply(AppendU64(nil, TypeForget, 1), Reply{ID: 2}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, buf := bytes.NewReader(raw), []byte(nil)
		for {
			typ, p, err := ReadFrame(r, &buf)
			if err != nil {
				return
			}
			switch typ { // what parses must survive the way back
			case TypeRequest:
				if q, err := ParseRequest(p); err == nil && !bytes.Equal(AppendRequest(nil, q)[5:], p) {
					t.Fatalf("request %q", p)
				}
			case TypeReply:
				if q, err := ParseReply(p); err == nil && !bytes.Equal(AppendReply(nil, q)[5:], p) {
					t.Fatalf("reply %q", p)
				}
			case TypeOutput:
				if q, err := ParseOutput(p); err == nil && !bytes.Equal(AppendOutput(nil, q)[5:], p) {
					t.Fatalf("output %q", p)
				}
			case TypeAck, TypeEOF:
				if q, err := ParseMark(p); err == nil && !bytes.Equal(AppendMark(nil, typ, q)[5:], p) {
					t.Fatalf("mark %q", p)
				}
			}
		}
	})
}
