package snapshot

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"perdure.dev/perdure/internal/errdefs"
)

// A manifest is "PRDMANI1", 16 random bytes, and its JSON, sealed with what names it as additional data: one that was put in
// another's place is not read.
const manifestMagic = "PRDMANI1"

func manifestObject(l Lineage, name string) string { return string(l) + "/manifests/" + name }

func (l *lineage) sealManifest(m Manifest) ([]byte, error) {
	plain, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	salt := randomName()
	out := append([]byte(manifestMagic), salt[:]...)
	return l.secrets.aead(contextManifest, salt[:]).Seal(out, nonce(0), plain, []byte(manifestObject(l.name, m.Name))), nil
}

func (l *lineage) manifest(ctx context.Context, name string) (Manifest, error) {
	if err := checkName("snapshot", name); err != nil {
		return Manifest{}, err
	}
	object := manifestObject(l.name, name)
	b, err := readObject(ctx, l.store.bucket, object)
	if isCode(err, CodeObjectMissing) {
		return Manifest{}, errdefs.New(errdefs.NotFound, CodeNotFound, "%s has no snapshot %s", l.name, name)
	} else if err != nil {
		return Manifest{}, err
	}
	const head = len(manifestMagic) + packNameSize
	if len(b) < head || string(b[:len(manifestMagic)]) != manifestMagic {
		return Manifest{}, corrupt("%s is not a manifest", object)
	}
	plain, err := l.secrets.aead(contextManifest, b[len(manifestMagic):head]).Open(nil, nonce(0), b[head:], []byte(object))
	if err != nil {
		return Manifest{}, corrupt("manifest %s is damaged", object)
	}
	var m Manifest
	if err := json.Unmarshal(plain, &m); err != nil {
		return Manifest{}, corrupt("manifest %s: %v", object, err)
	}
	if m.Version != manifestVersion || m.Name != name {
		return Manifest{}, corrupt("manifest %s is %q of version %d, and this is version %d", object, m.Name, m.Version, manifestVersion)
	}
	return m, nil
}

// MarshalText gives the id in hex.
func (i ID) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText is its inverse.
func (i *ID) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(string(b))
	if err != nil || len(raw) != len(i) {
		return corrupt("%q is no id of a chunk", b)
	}
	copy(i[:], raw)
	return nil
}
