package snapshot

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"

	"github.com/zeebo/blake3"
)

// ID is the address of a chunk: a keyed BLAKE3 hash of what it holds. The zero ID stands for zeros.
type ID [32]byte

// String returns the id in lower-case hex.
func (i ID) String() string { return hex.EncodeToString(i[:]) }

func (i ID) zero() bool { return i == ID{} }

// kind keeps the ids of pages and of nodes apart, so that a page that looks like a node is never read as one.
type kind uint8

const (
	pages kind = iota
	node
)

// secrets are the keys that a lineage's key gives.
type secrets struct {
	ids  [2]Key // by kind
	pack Key
	seed uint32 // of the checksums by which streams are cut: lengths of chunks must not tell what they hold
}

// The contexts of BLAKE3's key derivation. They are part of the format.
const (
	contextPages    = "perdure.dev snapshot v1: ids of pages"
	contextNodes    = "perdure.dev snapshot v1: ids of nodes"
	contextPacks    = "perdure.dev snapshot v1: packs"
	contextCuts     = "perdure.dev snapshot v1: cuts"
	contextPack     = "perdure.dev snapshot v1: one pack"
	contextManifest = "perdure.dev snapshot v1: one manifest"
)

func newSecrets(k Key) *secrets {
	var s secrets
	blake3.DeriveKey(contextPages, k[:], s.ids[pages][:])
	blake3.DeriveKey(contextNodes, k[:], s.ids[node][:])
	blake3.DeriveKey(contextPacks, k[:], s.pack[:])
	var seed [4]byte
	blake3.DeriveKey(contextCuts, k[:], seed[:])
	s.seed = binary.LittleEndian.Uint32(seed[:])
	return &s
}

// id returns the address of data.
func (s *secrets) id(k kind, data []byte) (id ID) {
	h, err := blake3.NewKeyed(s.ids[k][:])
	if err != nil {
		panic(err) // only for a key that is not 32 bytes long
	}
	_, _ = h.Write(data) // a hash takes everything
	h.Sum(id[:0])
	return id
}

// aead returns the cipher of one object: AES-256-GCM under a key that is the object's own, made from the lineage's and from a random name. So
// counters can be nonces, and none is ever used twice.
func (s *secrets) aead(context string, name []byte) cipher.AEAD {
	var k Key
	blake3.DeriveKey(context, append(s.pack[:len(s.pack):len(s.pack)], name...), k[:])
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // only for a key of a wrong length
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // only for a block of a wrong length
	}
	return gcm
}

const (
	nonceSize = 12
	tagSize   = 16
)

// nonce is a counter as a nonce.
func nonce(n uint64) []byte {
	b := make([]byte, nonceSize)
	binary.BigEndian.PutUint64(b[4:], n)
	return b
}
