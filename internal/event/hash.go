package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/gowebpki/jcs"

	"perdure.dev/perdure/internal/errdefs"
)

// Hash returns the hash that e carries when it follows an event with the hash prev ("" for the first of a log): lower-case
// hex of SHA-256 over the ASCII of prev and then the canonical JSON (RFC 8785) of the event without its hash member.
//
// In other words: take the event as the API prints it, remove "hash", canonicalise, prepend the previous hash, and digest.
// docs/verify_log.py does just that. It fails with invalid_event when the data has no canonical form (see Canonical).
func Hash(prev string, e Event) (string, error) {
	data, err := Canonical(e.Data)
	if err != nil {
		return "", err
	}
	return HashCanonical(prev, e, data), nil
}

// HashCanonical is Hash for an event whose data the caller has in canonical form already, which saves parsing it again.
func HashCanonical(prev string, e Event, data []byte) string {
	buf := make([]byte, 0, 384+len(data))
	buf = append(buf, prev...)
	buf = appendEnvelope(buf, e, data)
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:])
}

// appendEnvelope writes the canonical envelope by hand: the members in the order of their names, with data (canonical JSON)
// in its place. A test holds it against the general canonicaliser.
func appendEnvelope(buf []byte, e Event, data []byte) []byte {
	buf = append(buf, `{"actor_id":`...)
	buf = appendString(buf, string(e.ActorID))
	if e.CausationID != "" {
		buf = append(buf, `,"causation_id":`...)
		buf = appendString(buf, string(e.CausationID))
	}
	buf = append(buf, `,"created_at":"`...)
	buf = Stamp(e.CreatedAt).AppendFormat(buf, time.RFC3339Nano)
	buf = append(buf, `","data":`...)
	buf = append(buf, data...)
	buf = append(buf, `,"id":`...)
	buf = appendString(buf, string(e.ID))
	buf = append(buf, `,"seq":`...)
	buf = strconv.AppendUint(buf, uint64(e.Seq), 10) // below 2^53, so it is its own canonical form
	buf = append(buf, `,"session_id":`...)
	buf = appendString(buf, string(e.SessionID))
	buf = append(buf, `,"type":`...)
	buf = appendString(buf, string(e.Type))
	return append(buf, '}')
}

// Stamp returns t as events carry it: UTC, cut to microseconds.
func Stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Canonical returns the canonical form (RFC 8785) of a JSON text. It fails with invalid_event for what has none: broken
// JSON, a member name twice in one object, half of a surrogate pair, a number that no float64 can hold. Code that puts text
// of others into an event, such as a model's tool arguments, can ask beforehand.
//
// Numbers are compared as float64, as the RFC demands: two integers above 2^53 may share one canonical form. The log keeps
// the text as it came, so nothing is rounded in what a reader gets.
func Canonical(raw json.RawMessage) ([]byte, error) {
	out, err := jcs.Transform(raw)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Invalid, CodeInvalid, "the event's data has no canonical form")
	}
	return out, nil
}

const hexDigits = "0123456789abcdef"

// appendString writes s as canonical JSON (RFC 8785 §3.2.2.2). Invalid UTF-8 becomes U+FFFD, as encoding/json has it.
func appendString(buf []byte, s string) []byte {
	buf = append(buf, '"')
	for _, c := range bytes.ToValidUTF8([]byte(s), []byte("\uFFFD")) {
		switch {
		case c == '"' || c == '\\':
			buf = append(buf, '\\', c)
		case c == '\b':
			buf = append(buf, `\b`...)
		case c == '\t':
			buf = append(buf, `\t`...)
		case c == '\n':
			buf = append(buf, `\n`...)
		case c == '\f':
			buf = append(buf, `\f`...)
		case c == '\r':
			buf = append(buf, `\r`...)
		case c < 0x20:
			buf = append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			buf = append(buf, c)
		}
	}
	return append(buf, '"')
}
