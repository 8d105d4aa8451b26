package snapshot

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A pack is
//
//	"PRDPACK1"  name (16 random bytes)
//	chunk …     each sealed with its id as additional data; the n-th with nonce n
//	table       sealed with the header as additional data and the largest nonce; 45 bytes for each chunk, little-endian:
//	            id 32, offset 4, stored length 4, length 4, flags 1
//	length of the sealed table (4)  "PRDPEND1"
const (
	packMagic    = "PRDPACK1"
	packEnd      = "PRDPEND1"
	packNameSize = 16
	headerSize   = len(packMagic) + packNameSize
	trailerSize  = 4 + len(packEnd)
	recordSize   = len(ID{}) + 4 + 4 + 4 + 1
	packFull     = 8 << 20 // bytes, from which on a pack takes no more
	maxChunk     = maxPages * pageSize
	tableNonce   = math.MaxUint64

	flagNode       = 1 << 0
	flagCompressed = 1 << 1
)

// record is a line of a pack's table.
type record struct {
	id     ID
	offset uint32
	stored uint32 // bytes, as they are in the pack
	length uint32 // bytes of the chunk
	flags  uint8
	number uint64 // its place in the table, which is its nonce
}

func (r record) kind() kind {
	if r.flags&flagNode != 0 {
		return node
	}
	return pages
}

// codecs compress and decompress whole chunks; both are safe for use by many goroutines.
type codecs struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

var newCodecs = sync.OnceValues(func() (codecs, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		return codecs{}, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxChunk))
	return codecs{enc, dec}, err
})

// packer fills a pack.
type packer struct {
	name   string
	sealer interface {
		Seal(dst, nonce, plain, add []byte) []byte
	}
	buf     []byte
	records []record
}

// newPacker begins a pack in buf. Its name must be random: two packs of one name have one key.
func newPacker(s *secrets, name [packNameSize]byte, buf []byte) *packer {
	p := &packer{name: hex.EncodeToString(name[:]), sealer: s.aead(contextPack, name[:])}
	p.buf = append(append(buf[:0], packMagic...), name[:]...)
	return p
}

// add seals body, which is the chunk or its compressed form, and is not used afterwards.
func (p *packer) add(id ID, k kind, body []byte, length int, compressed bool) {
	r := record{id: id, offset: uint32(len(p.buf)), length: uint32(length), number: uint64(len(p.records))}
	if k == node {
		r.flags |= flagNode
	}
	if compressed {
		r.flags |= flagCompressed
	}
	p.buf = p.sealer.Seal(p.buf, nonce(r.number), body, id[:])
	r.stored = uint32(len(p.buf)) - r.offset
	p.records = append(p.records, r)
}

func randomName() (name [packNameSize]byte) {
	_, _ = rand.Read(name[:]) // it never fails: see crypto/rand
	return name
}

func (p *packer) full() bool { return len(p.buf) >= packFull }

// finish returns the whole object.
func (p *packer) finish() []byte {
	table := make([]byte, 0, len(p.records)*recordSize)
	for _, r := range p.records {
		table = append(table, r.id[:]...)
		table = binary.LittleEndian.AppendUint32(table, r.offset)
		table = binary.LittleEndian.AppendUint32(table, r.stored)
		table = binary.LittleEndian.AppendUint32(table, r.length)
		table = append(table, r.flags)
	}
	before := len(p.buf)
	p.buf = p.sealer.Seal(p.buf, nonce(tableNonce), table, p.buf[:headerSize])
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(len(p.buf)-before))
	p.buf = append(p.buf, packEnd...)
	return p.buf
}

// compress returns the shorter of data and its compressed form.
func (c codecs) compress(data, into []byte) (body []byte, compressed bool) {
	out := c.enc.EncodeAll(data, into[:0])
	if len(out) < len(data)-len(data)/16 {
		return out, true
	}
	return data, false
}

// tailSize is what is read of a pack's end at once: for nearly all packs, the whole table.
const tailSize = 64 << 10

// readTable returns a pack's table.
func readTable(ctx context.Context, b Bucket, s *secrets, o Object) ([]record, error) {
	name := o.Name
	if o.Size < int64(headerSize+trailerSize+tagSize) || o.Size > math.MaxUint32 {
		return nil, corrupt("pack %s has %d bytes", name, o.Size)
	}
	header, err := getAll(ctx, b, name, 0, int64(headerSize))
	if err != nil {
		return nil, err
	}
	if string(header[:len(packMagic)]) != packMagic {
		return nil, corrupt("%s is not a pack", name)
	}
	from := max(0, o.Size-tailSize)
	tail, err := getAll(ctx, b, name, from, o.Size-from)
	if err != nil {
		return nil, err
	}
	end := len(tail) - trailerSize
	if string(tail[end+4:]) != packEnd {
		return nil, corrupt("pack %s has no end", name)
	}
	length := int(binary.LittleEndian.Uint32(tail[end:]))
	if int64(length) > o.Size-int64(headerSize+trailerSize) {
		return nil, corrupt("pack %s has a table of %d bytes in %d", name, length, o.Size)
	}
	if length > end {
		if tail, err = getAll(ctx, b, name, o.Size-int64(trailerSize+length), int64(length)); err != nil {
			return nil, err
		}
		end = length
	}
	table, err := s.aead(contextPack, header[len(packMagic):]).Open(nil, nonce(tableNonce), tail[end-length:end], header)
	if err != nil || len(table)%recordSize != 0 {
		return nil, corrupt("pack %s has a damaged table", name)
	}
	records := make([]record, len(table)/recordSize)
	for i := range records {
		line := table[i*recordSize:]
		r := record{
			offset: binary.LittleEndian.Uint32(line[32:]), stored: binary.LittleEndian.Uint32(line[36:]),
			length: binary.LittleEndian.Uint32(line[40:]), flags: line[44], number: uint64(i),
		}
		copy(r.id[:], line)
		if int64(r.offset)+int64(r.stored) > o.Size || r.length > maxChunk || r.stored > maxChunk+tagSize {
			return nil, corrupt("pack %s has a chunk outside", name)
		}
		records[i] = r
	}
	return records, nil
}

// getAll reads a range that must be there.
func getAll(ctx context.Context, b Bucket, name string, offset, length int64) ([]byte, error) {
	r, err := b.Get(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	buf := make([]byte, length)
	if n, err := io.ReadFull(r, buf); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, corrupt("%s ends at byte %d", name, offset+int64(n))
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return buf, nil
}
