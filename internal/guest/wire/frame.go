package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the link's language. A host and a guest of different versions do not talk.
const Version = 1

// Limits of frames and of the pieces in them, in bytes.
const (
	MaxFrame  = 16 << 20  // one frame, without its length
	MaxChunk  = 64 << 10  // data of one Output frame
	MaxBlob   = 256 << 10 // data that a sender puts beside one request or reply
	MaxExecID = 128
	maxMethod = 64
)

// Type says what a frame is.
type Type byte

// The frame types.
const (
	TypeHello   Type = 1 + iota // guest: who it is and what it holds; JSON Hello
	TypeWelcome                 // host: the answer; JSON Welcome
	TypeRequest                 // host: Request
	TypeReply                   // guest: Reply
	TypeForget                  // host: the reply to a request has arrived; u64
	TypeOutput                  // guest: Output
	TypeEOF                     // guest: a stream ends at an offset; Mark
	TypeAck                     // host: a stream is stored up to an offset; Mark
	TypeExit                    // guest: JSON Exit
	TypeExitAck                 // host: the exec id
	TypeEvent                   // guest: JSON Event
	TypePing                    // both: asks for a Pong
	TypePong                    // both
	typeEnd
)

// ErrFrame is the root of all decoding errors: what came is not this language.
var ErrFrame = errors.New("malformed frame")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFrame, fmt.Sprintf(format, args...))
}

// ReadFrame reads one frame. The payload is valid until the next call with the same buffer, which grows as needed.
// It returns io.EOF only between frames.
func ReadFrame(r io.Reader, buf *[]byte) (Type, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:4])
	t := Type(head[4])
	if n > MaxFrame {
		return 0, nil, malformed("%d bytes are more than a frame may have", n)
	}
	if t == 0 || t >= typeEnd {
		return 0, nil, malformed("unknown type %d", t)
	}
	if err := readInto(r, buf, int(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return t, (*buf)[:n], nil
}

// readInto fills buf with n bytes. It grows the buffer as data arrives, so that a false length costs no memory.
func readInto(r io.Reader, buf *[]byte, n int) error {
	const step = 1 << 20
	for have := 0; have < n; {
		want := min(n, have+step)
		if cap(*buf) < want {
			grown := make([]byte, want, min(n, 2*want))
			copy(grown, (*buf)[:have])
			*buf = grown
		}
		*buf = (*buf)[:want]
		m, err := io.ReadFull(r, (*buf)[have:want])
		if err != nil {
			return err
		}
		have += m
	}
	return nil
}

// AppendFrame appends a frame to dst; parts are joined to its payload.
func AppendFrame(dst []byte, t Type, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	dst = append(dst, byte(t))
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}
