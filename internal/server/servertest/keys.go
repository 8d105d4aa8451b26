package servertest

import (
	"context"
	"sync"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server"
)

// Keys is an idempotency store in memory.
type Keys struct {
	mu       sync.Mutex // guards the fields below
	m        map[string]server.Answer
	stranded bool
	freed    map[string]bool
}

// NewKeys returns an empty store.
func NewKeys() *Keys { return &Keys{m: map[string]server.Answer{}, freed: map[string]bool{}} }

// Strand makes each key that is not known one that was claimed by a daemon that died.
func (k *Keys) Strand() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stranded = true
}

// Begin claims a key.
func (k *Keys) Begin(_ context.Context, key string, fingerprint []byte) (*server.Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.m[key]; ok {
		return &old, nil
	}
	if k.stranded && !k.freed[key] {
		return nil, errdefs.New(errdefs.Conflict, "idempotency_unknown", "the daemon was stopped during the first request with the key")
	}
	k.m[key] = server.Answer{Fingerprint: fingerprint}
	return nil, nil
}

// Finish stores an answer.
func (k *Keys) Finish(_ context.Context, key string, a server.Answer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.m[key] = a
	return nil
}

// Abandon forgets a key.
func (k *Keys) Abandon(_ context.Context, key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.m, key)
	k.freed[key] = true
	return nil
}
