package portable

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// What a reader takes.
const (
	maxHeader  = 16 << 20   // bytes, of header and trailer
	maxEntries = 50_000_000 // members
	maxLogs    = 1000
	maxLayers  = 1000
)

// Reader reads a stream, which it does not trust. It is for one goroutine.
type Reader struct {
	Header Header
	// Trailer is there once Next has returned io.EOF.
	Trailer Trailer

	source  *source
	zr      *zstd.Decoder
	tr      *tar.Reader
	sum     *digest
	body    io.Reader // of the member in progress
	entries int
	left    int64 // bytes that the header still allows
}

// Member is one member of a stream.
type Member struct {
	Name string
	Tar  *tar.Header
	Body io.Reader // Tar.Size bytes; valid until the next member
}

func damaged(format string, args ...any) *errdefs.Error {
	return errdefs.New(errdefs.Invalid, "archive_damaged", format, args...).WithHint("make it anew: perdure export S -o FILE")
}

func bad(format string, args ...any) *errdefs.Error {
	return errdefs.New(errdefs.Invalid, "bad_archive", format, args...)
}

// NewReader reads a stream's header. Close ends it. Errors: bad_archive for what is no stream, archive_newer, archive_truncated.
func NewReader(r io.Reader) (*Reader, error) {
	src := &source{r: r}
	zr, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowSize))
	if err != nil {
		return nil, err
	}
	out := &Reader{source: src, zr: zr, tr: tar.NewReader(zr), sum: newDigest(), left: maxHeader}
	if err := out.readHeader(); err != nil {
		zr.Close()
		return nil, err
	}
	return out, nil
}

func (r *Reader) readHeader() error {
	m, err := r.member()
	if err != nil {
		if errdefs.CodeOf(err) == "archive_damaged" {
			err = bad("this is no archive of a session: %v", err)
		}
		return err
	}
	if m.Name != headerName {
		return bad("this is no archive of a session: it begins with %.100q", m.Name)
	}
	if err := r.decode(m, &r.Header); err != nil {
		return err
	}
	h := r.Header
	switch {
	case h.Kind != Kind:
		return bad("this is no archive of a session, but of kind %.100q", h.Kind)
	case h.Format > Format:
		return errdefs.New(errdefs.Unavailable, "archive_newer", "the archive has format %d, this build reads up to %d", h.Format, Format).
			WithHint("use the version of Perdure that made it: %.60s", h.Build)
	case h.Format < 1 || h.Bytes < 0 || len(h.Logs) == 0 || len(h.Logs) > maxLogs || len(h.Layers) > maxLayers,
		h.Logs[len(h.Logs)-1].SessionID != h.Session.ID, !id.Valid("ckpt", string(h.Checkpoint.ID)):
		return bad("the archive's header does not fit together")
	}
	for _, l := range h.Logs {
		if !id.Valid("sess", string(l.SessionID)) || l.Events < 1 {
			return bad("the archive's header names a log %.100q with %d events", l.SessionID, l.Events)
		}
	}
	for i, l := range h.Layers {
		if !id.Valid("lyr", string(l)) || slices.Contains(h.Layers[:i], l) {
			return bad("the archive's header names a layer %.100q", l)
		}
	}
	r.left = h.Bytes
	return nil
}

// decode reads a member as JSON.
func (r *Reader) decode(m *Member, v any) error {
	if m.Tar.Size > maxHeader {
		return bad("%s has %d bytes", m.Name, m.Tar.Size)
	}
	b, err := io.ReadAll(m.Body)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(v); err != nil {
		return bad("%s cannot be read: %v", m.Name, err)
	}
	return nil
}

// Next returns the next member, or io.EOF when the stream has ended as it should. Whatever the caller has not read of the member before is read first.
func (r *Reader) Next() (*Member, error) {
	m, err := r.member()
	if err != nil || m.Name != trailerName {
		return m, err
	}
	if err := r.decode(m, &r.Trailer); err != nil {
		return nil, err
	}
	got := r.sum.trailer()
	for i, p := range got.Parts {
		if i >= len(r.Trailer.Parts) || r.Trailer.Parts[i] != p {
			return nil, damaged("%s of the archive is not what was written", p.Name)
		}
	}
	if len(r.Trailer.Parts) != len(got.Parts) || r.Trailer.Entries != got.Entries || r.Trailer.Bytes != got.Bytes {
		return nil, damaged("the archive's trailer speaks of more than there is")
	}
	if _, err := r.tr.Next(); err == nil {
		return nil, damaged("there is something behind the archive's end")
	} else if !errors.Is(err, io.EOF) {
		return nil, r.broken(err)
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(r.zr, 1)); err != nil {
		return nil, r.broken(err)
	} else if n > 0 {
		return nil, damaged("there is something behind the archive's end")
	}
	return nil, io.EOF
}

func (r *Reader) member() (*Member, error) {
	if r.body != nil {
		if _, err := io.Copy(io.Discard, r.body); err != nil {
			return nil, err
		}
		r.body = nil
	}
	h, err := r.tr.Next()
	if err != nil {
		return nil, r.broken(err)
	}
	if r.entries++; r.entries > maxEntries {
		return nil, bad("the archive has more than %d members", maxEntries)
	}
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	switch {
	case strings.ContainsRune(name, 0) || path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") || name == "" || len(name) > 8192:
		return nil, bad("the archive's name %.100q leads out of it", h.Name)
	case name == trailerName && h.Typeflag != tar.TypeReg, h.Size < 0:
		return nil, bad("the archive's member %.100q is none", h.Name)
	}
	limit := r.left
	if name == trailerName || name == headerName {
		limit = maxHeader
	}
	if h.Size > limit {
		return nil, bad("the archive has more in it than its header says")
	}
	if limit == r.left && name != headerName {
		r.left -= h.Size
	}
	m := &Member{Name: h.Name, Tar: h}
	if name == trailerName {
		r.body = &reading{r: r, from: r.tr}
		m.Body = r.body
		return m, nil
	}
	if !r.sum.begin(h) {
		return nil, bad("the archive's member %.100q is out of order", h.Name)
	}
	r.body = &reading{r: r, from: io.TeeReader(r.tr, r.sum.h)}
	m.Body = r.body
	return m, nil
}

// broken makes an error of what tar and zstd say.
func (r *Reader) broken(err error) error {
	var typed *errdefs.Error
	switch {
	case errors.As(err, &typed):
		return err
	case r.source.err != nil:
		return r.source.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errdefs.New(errdefs.Invalid, "archive_truncated", "the archive ends in its middle").
			WithHint("the copy or the export was cut; make it anew: perdure export S -o FILE")
	}
	return damaged("the archive cannot be read: %v", err)
}

// source is where a stream comes from. It keeps an error that is its own, not the stream's.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// reading is a member's body, whose errors are the reader's.
type reading struct {
	r    *Reader
	from io.Reader
}

func (b *reading) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.r.broken(err)
	}
	return n, err
}

// Close frees what the reader holds.
func (r *Reader) Close() { r.zr.Close() }

// Check reads a stream to its end, and returns its header and trailer if it is whole.
func Check(from io.Reader) (Header, Trailer, error) {
	r, err := NewReader(from)
	if err != nil {
		return Header{}, Trailer{}, err
	}
	defer r.Close()
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return r.Header, r.Trailer, nil
		} else if err != nil {
			return r.Header, Trailer{}, err
		}
	}
}
