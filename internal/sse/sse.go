// Package sse reads server-sent events, as https://html.spec.whatwg.org/multipage/server-sent-events.html has them: those of Perdure's own
// API and those of models.
package sse

import (
	"bufio"
	"bytes"
	"io"

	"perdure.dev/perdure/internal/errdefs"
)

// maxLine bounds a line of a stream, in bytes: an event holds at most one message or tool result.
const maxLine = 64 << 20

// Message is one event.
type Message struct {
	Event string // "" is the default
	ID    string
	HasID bool
	Data  []byte
}

// Decoder reads events. One that the end of the stream cuts is not delivered.
type Decoder struct {
	r   *bufio.Reader
	max int  // bytes of a line
	eol bool // a CR ended the last line: skip the LF after it
}

// NewDecoder makes a Decoder of a stream.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: bufio.NewReader(r), max: maxLine} }

// Next returns the next event that has data or an id; comments and retry fields are skipped.
func (d *Decoder) Next() (Message, error) {
	var m Message
	seen := false
	for {
		line, err := d.line()
		if err != nil {
			return Message{}, err
		}
		if len(line) == 0 {
			if seen {
				return m, nil
			}
			m = Message{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			m.Event = string(value)
		case "data":
			if m.Data != nil {
				m.Data = append(m.Data, '\n')
			}
			m.Data = append(m.Data, value...)
			if m.Data == nil {
				m.Data = []byte{}
			}
			seen = true
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				m.ID, m.HasID, seen = string(value), true, true
			}
		}
	}
}

// line reads up to CR, LF or CRLF, which it leaves out.
func (d *Decoder) line() ([]byte, error) {
	var line []byte
	for {
		c, err := d.r.ReadByte()
		if err != nil {
			return nil, err // what came before is incomplete
		}
		if d.eol {
			d.eol = false
			if c == '\n' {
				continue
			}
		}
		switch c {
		case '\n':
			return line, nil
		case '\r':
			d.eol = true
			return line, nil
		}
		if len(line) >= d.max {
			return nil, errdefs.New(errdefs.Invalid, "bad_answer", "a line of the event stream is longer than %d bytes", d.max)
		}
		line = append(line, c)
	}
}
