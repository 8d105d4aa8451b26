package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite"
)

// keys keeps the server's answers to repeated requests in the store.
type keys struct{ db *sqlite.Store }

const keyScope = "http"

// keyLife is how long an idempotency key is remembered.
const keyLife = actor.RequestLife

func (k keys) Begin(ctx context.Context, key string, fingerprint []byte) (*server.Answer, error) {
	stored, err := k.db.BeginIdempotent(ctx, keyScope, key, hex.EncodeToString(fingerprint))
	switch errdefs.CodeOf(err) {
	case store.CodeIdempotencyMismatch:
		return &server.Answer{Status: http.StatusOK}, nil // no fingerprint, so none that matches
	case store.CodeIdempotencyInFlight:
		return &server.Answer{Fingerprint: fingerprint}, nil
	}
	if err != nil || stored == nil {
		return nil, err
	}
	var a server.Answer
	if err := json.Unmarshal(stored.Body, &a); err != nil {
		return nil, err
	}
	return &a, nil
}

func (k keys) Finish(ctx context.Context, key string, a server.Answer) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return k.db.FinishIdempotent(ctx, keyScope, key, store.Answer{Status: a.Status, Body: b})
}

func (k keys) Abandon(ctx context.Context, key string) error {
	return k.db.AbandonIdempotent(ctx, keyScope, key)
}

// expireKeys forgets old keys now and then.
func expireKeys(ctx context.Context, db *sqlite.Store, log *slog.Logger) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if _, err := db.ExpireIdempotent(ctx, now.Add(-keyLife)); err != nil && ctx.Err() == nil {
				log.Warn("cannot forget old idempotency keys", "error", err) // a full disk must not end the daemon
			}
		}
	}
}
