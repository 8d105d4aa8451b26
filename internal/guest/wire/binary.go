package wire

import "encoding/binary"

// StreamID names an output stream of a command in binary frames.
type StreamID byte

// The streams.
const (
	Stdout StreamID = 1
	Stderr StreamID = 2
)

// Request asks the guest for something. Head is JSON, Blob bytes that go with it.
type Request struct {
	ID     uint64
	Method string
	Head   []byte
	Blob   []byte
}

// AppendRequest appends the frame of r to dst.
func AppendRequest(dst []byte, r Request) []byte {
	fixed := make([]byte, 0, 13+len(r.Method))
	fixed = binary.BigEndian.AppendUint64(fixed, r.ID)
	fixed = append(fixed, byte(len(r.Method)))
	fixed = append(fixed, r.Method...)
	fixed = binary.BigEndian.AppendUint32(fixed, uint32(len(r.Head)))
	return AppendFrame(dst, TypeRequest, fixed, r.Head, r.Blob)
}

// ParseRequest decodes a Request. Its slices point into p.
func ParseRequest(p []byte) (Request, error) {
	var r Request
	if len(p) < 9 {
		return r, malformed("request of %d bytes", len(p))
	}
	r.ID = binary.BigEndian.Uint64(p)
	n := int(p[8])
	p = p[9:]
	if n > maxMethod || len(p) < n {
		return r, malformed("method of %d bytes", n)
	}
	r.Method = string(p[:n])
	head, blob, err := splitHead(p[n:])
	r.Head, r.Blob = head, blob
	return r, err
}

// Reply answers a Request.
type Reply struct {
	ID   uint64
	Head []byte // JSON ReplyHead
	Blob []byte
}

// AppendReply appends the frame of r to dst.
func AppendReply(dst []byte, r Reply) []byte {
	fixed := make([]byte, 0, 12)
	fixed = binary.BigEndian.AppendUint64(fixed, r.ID)
	fixed = binary.BigEndian.AppendUint32(fixed, uint32(len(r.Head)))
	return AppendFrame(dst, TypeReply, fixed, r.Head, r.Blob)
}

// ParseReply decodes a Reply. Its slices point into p.
func ParseReply(p []byte) (Reply, error) {
	var r Reply
	if len(p) < 8 {
		return r, malformed("reply of %d bytes", len(p))
	}
	r.ID = binary.BigEndian.Uint64(p)
	head, blob, err := splitHead(p[8:])
	r.Head, r.Blob = head, blob
	return r, err
}

func splitHead(p []byte) (head, blob []byte, err error) {
	if len(p) < 4 {
		return nil, nil, malformed("no head")
	}
	n := binary.BigEndian.Uint32(p)
	p = p[4:]
	if uint64(n) > uint64(len(p)) {
		return nil, nil, malformed("head of %d bytes in %d", n, len(p))
	}
	return p[:n:n], p[n:], nil
}

// Mark is a place in a stream of a command.
type Mark struct {
	Exec   string
	Stream StreamID
	Offset int64
}

// Output is a piece of a stream; its first byte stands at the mark.
type Output struct {
	Mark
	Data []byte
}

func appendMark(dst []byte, m Mark) []byte {
	dst = append(dst, byte(m.Stream))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Offset))
	dst = append(dst, byte(len(m.Exec)))
	return append(dst, m.Exec...)
}

// AppendOutput appends the frame of o to dst.
func AppendOutput(dst []byte, o Output) []byte {
	return AppendFrame(dst, TypeOutput, appendMark(make([]byte, 0, 10+MaxExecID), o.Mark), o.Data)
}

// AppendMark appends a frame of type TypeAck or TypeEOF to dst.
func AppendMark(dst []byte, t Type, m Mark) []byte {
	return AppendFrame(dst, t, appendMark(make([]byte, 0, 10+MaxExecID), m))
}

// ParseOutput decodes an Output. Its data points into p.
func ParseOutput(p []byte) (Output, error) {
	m, rest, err := parseMark(p)
	return Output{Mark: m, Data: rest}, err
}

// ParseMark decodes an Ack or an EOF.
func ParseMark(p []byte) (Mark, error) {
	m, rest, err := parseMark(p)
	if err == nil && len(rest) != 0 {
		err = malformed("%d bytes after a mark", len(rest))
	}
	return m, err
}

func parseMark(p []byte) (Mark, []byte, error) {
	var m Mark
	if len(p) < 10 {
		return m, nil, malformed("mark of %d bytes", len(p))
	}
	m.Stream = StreamID(p[0])
	if m.Stream != Stdout && m.Stream != Stderr {
		return m, nil, malformed("stream %d", p[0])
	}
	off := binary.BigEndian.Uint64(p[1:])
	if off > 1<<62 {
		return m, nil, malformed("offset %d", off)
	}
	m.Offset = int64(off)
	n := int(p[9])
	if n == 0 || n > MaxExecID || len(p) < 10+n {
		return m, nil, malformed("exec id of %d bytes", n)
	}
	m.Exec = string(p[10 : 10+n])
	return m, p[10+n:], nil
}

// AppendU64 appends a frame that holds one number, such as TypeForget.
func AppendU64(dst []byte, t Type, v uint64) []byte {
	return AppendFrame(dst, t, binary.BigEndian.AppendUint64(nil, v))
}

// ParseU64 decodes a frame that holds one number.
func ParseU64(p []byte) (uint64, error) {
	if len(p) != 8 {
		return 0, malformed("number of %d bytes", len(p))
	}
	return binary.BigEndian.Uint64(p), nil
}
