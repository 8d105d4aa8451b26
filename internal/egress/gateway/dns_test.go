package gateway

import (
	"encoding/binary"
	"testing"
)

// query asks for the address of example.com, with EDNS in the additional section.
var query = []byte("\x12\x34\x01\x20\x00\x01\x00\x00\x00\x00\x00\x01\x07EXample\x03com\x00\x00\x01\x00\x01\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00")

func TestRefusalAnswersTheQuestion(t *testing.T) {
	if name := questionName(query); name != "example.com" {
		t.Errorf("name %q", name)
	}
	reply := refusal(query)
	if len(reply) != 29 || string(reply[:2]) != "\x12\x34" || string(reply[12:]) != string(query[12:29]) {
		t.Fatalf("reply %x", reply)
	}
	if flags := binary.BigEndian.Uint16(reply[2:]); flags != 0x8105 {
		t.Errorf("flags %#x: want a response, recursion desired as asked, REFUSED", flags)
	}
	if counts := string(reply[4:12]); counts != "\x00\x01\x00\x00\x00\x00\x00\x00" {
		t.Errorf("counts %x", counts)
	}
}

func TestMalformedQuestionsAreNotAnswered(t *testing.T) {
	for n := range 28 {
		if refusal(query[:n]) != nil || questionName(query[:n]) != "" {
			t.Errorf("answered a question cut to %d bytes", n)
		}
	}
	for what, change := range map[string]func(q []byte){
		"a response":    func(q []byte) { q[2] |= 0x80 },
		"two questions": func(q []byte) { q[5] = 2 },
		"compression":   func(q []byte) { q[12] = 0xc0 },
		"a long label":  func(q []byte) { q[12] = 63 },
	} {
		q := append([]byte(nil), query...)
		change(q)
		if refusal(q) != nil {
			t.Errorf("answered %s", what)
		}
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add(query)
	f.Fuzz(func(t *testing.T, q []byte) {
		if r := refusal(q); r != nil && len(r) > len(q) {
			t.Errorf("amplified %d bytes to %d", len(q), len(r))
		}
		questionName(q)
	})
}
