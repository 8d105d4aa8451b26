package portable

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Writer writes a stream. It is for one goroutine.
type Writer struct {
	zw  *zstd.Encoder
	tw  *tar.Writer
	sum *digest
}

// NewWriter begins a stream with its header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	zw, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(windowSize))
	if err != nil {
		return nil, err
	}
	out := &Writer{zw: zw, tw: tar.NewWriter(zw), sum: newDigest()}
	h.Kind, h.Format = Kind, Format
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return nil, err
	}
	return out, out.Bytes(headerName, append(b, '\n'))
}

// windowSize bounds what a reader has to keep, in bytes.
const windowSize = 8 << 20

// Bytes writes a member that is in memory.
func (w *Writer) Bytes(name string, b []byte) error {
	f, err := w.File(name, int64(len(b)), time.Unix(0, 0))
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return err
}

// File begins a member of size bytes, which the caller writes to what is returned.
func (w *Writer) File(name string, size int64, modified time.Time) (io.Writer, error) {
	return w.Add(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: modified})
}

// Add begins any member. h.Size bytes are to be written to what is returned.
func (w *Writer) Add(h *tar.Header) (io.Writer, error) {
	if h.ModTime.IsZero() {
		h.ModTime = time.Unix(0, 0) // as it is read again
	}
	if !w.sum.begin(h) {
		return nil, fmt.Errorf("member %q is out of order", h.Name)
	}
	if err := w.tw.WriteHeader(h); err != nil {
		return nil, err
	}
	return io.MultiWriter(w.tw, w.sum.h), nil
}

// Close ends the stream with its trailer. Without it the stream is none.
func (w *Writer) Close() error {
	t := w.sum.trailer()
	b, err := json.MarshalIndent(t, "", "  ")
	if err == nil {
		err = w.Bytes(trailerName, append(b, '\n'))
	}
	if err == nil {
		err = w.tw.Close()
	}
	return errors.Join(err, w.zw.Close())
}

// Abort gives up a stream, which stays without a trailer.
func (w *Writer) Abort() { w.zw.Reset(nil) }
