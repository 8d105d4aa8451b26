package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"sync"
)

const (
	pageSize = 4096
	minPages = 4
	maxPages = 64
	cutMask  = 1<<4 - 1 // a cut after one page of sixteen: 64 KiB on average
)

var (
	zeroPage   [pageSize]byte
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// buffers holds buffers of one chunk: touching fresh memory costs more than filling it.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, maxPages*pageSize); return &b }}

// piece is what a stream is cut into: a chunk, or a run of zeros.
type piece struct {
	zeros int64   // bytes; 0 for a chunk
	data  *[]byte // from buffers; whoever gets the piece puts it back
}

// cut reads r to its end and hands out its pieces in order.
func cut(ctx context.Context, r io.Reader, seed uint32, emit func(piece) error) error {
	in := bufio.NewReaderSize(r, 1<<20)
	var zeros int64
	cur := buffers.Get().(*[]byte)
	defer func() { free(cur) }()
	flush := func() error {
		if zeros > 0 {
			p := piece{zeros: zeros}
			zeros = 0
			return emit(p)
		}
		if len(*cur) == 0 {
			return nil
		}
		p := piece{data: cur}
		cur = buffers.Get().(*[]byte)
		return emit(p)
	}
	var page [pageSize]byte
	for {
		n, err := io.ReadFull(in, page[:])
		if errors.Is(err, io.EOF) {
			return flush()
		} else if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if bytes.Equal(page[:n], zeroPage[:n]) {
			if len(*cur) > 0 {
				if err := flush(); err != nil {
					return err
				}
			}
			zeros += int64(n)
			continue
		}
		if zeros > 0 {
			if err := flush(); err != nil {
				return err
			}
		}
		*cur = append(*cur, page[:n]...)
		held := len(*cur) / pageSize
		if held >= maxPages || held >= minPages && crc32.Update(seed, castagnoli, page[:n])&cutMask == 0 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

func free(b *[]byte) {
	*b = (*b)[:0]
	buffers.Put(b)
}
