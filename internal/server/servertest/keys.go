package servertest

import (
	"context"
	"sync"

	"perdure.dev/perdure/internal/server"
)

// Keys is an idempotency store in memory.
type Keys struct {
	mu sync.Mutex // guards m
	m  map[string]server.Answer
}

// NewKeys returns an empty store.
func NewKeys() *Keys { return &Keys{m: map[string]server.Answer{}} }

// Begin claims a key.
func (k *Keys) Begin(_ context.Context, key string, fingerprint []byte) (*server.Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.m[key]; ok {
		return &old, nil
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
	return nil
}
