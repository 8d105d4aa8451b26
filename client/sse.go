package client

import (
	"bufio"
	"bytes"
	"io"

	"perdure.dev/perdure/internal/errdefs"
)

// maxLine bounds a line of a stream, in bytes: an event holds at most one message or tool result.
const maxLine = 64 << 20

// message is one server-sent event.
type message struct {
	event string // "" is the default
	id    string
	hasID bool
	data  []byte
}

// decoder reads server-sent events, as https://html.spec.whatwg.org/multipage/server-sent-events.html has them. An event that the end of
// the stream cuts is not delivered.
type decoder struct {
	r   *bufio.Reader
	max int  // bytes of a line
	eol bool // a CR ended the last line: skip the LF after it
}

func newDecoder(r io.Reader) *decoder { return &decoder{r: bufio.NewReader(r), max: maxLine} }

// next returns the next event that has data or an id; comments and retry fields are skipped.
func (d *decoder) next() (message, error) {
	var m message
	seen := false
	for {
		line, err := d.line()
		if err != nil {
			return message{}, err
		}
		if len(line) == 0 {
			if seen {
				return m, nil
			}
			m = message{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			m.event = string(value)
		case "data":
			if m.data != nil {
				m.data = append(m.data, '\n')
			}
			m.data = append(m.data, value...)
			if m.data == nil {
				m.data = []byte{}
			}
			seen = true
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				m.id, m.hasID, seen = string(value), true, true
			}
		}
	}
}

// line reads up to CR, LF or CRLF, which it leaves out.
func (d *decoder) line() ([]byte, error) {
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
