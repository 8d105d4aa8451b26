package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/store"
	"perdure.dev/perdure/internal/store/sqlite/db"
)

const stateDone = "done"

// BeginIdempotent registers a request that carries an idempotency key. The scope keeps callers or operations apart. A nil
// answer means: do it, then call FinishIdempotent or AbandonIdempotent. Otherwise the answer is to be given again.
//
// It fails with idempotency_mismatch when the key was used with another request, idempotency_in_flight when the first
// request still runs, and idempotency_unknown when the process that ran it died, so that nobody knows how far it got.
func (s *Store) BeginIdempotent(ctx context.Context, scope, key, requestHash string) (*store.Answer, error) {
	var answer *store.Answer
	err := s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		answer = nil
		row, err := q.GetIdempotency(ctx, db.GetIdempotencyParams{Scope: scope, Key: key})
		if errors.Is(err, sql.ErrNoRows) {
			return q.InsertIdempotency(ctx, db.InsertIdempotencyParams{
				Scope: scope, Key: key, RequestHash: requestHash, RunID: string(s.run), CreatedAt: micros(s.clock.Now()),
			})
		} else if err != nil {
			return err
		}
		switch {
		case row.RequestHash != requestHash:
			return refuse(errdefs.New(errdefs.Invalid, store.CodeIdempotencyMismatch, "the idempotency key %q was used for another request", key).
				WithHint("use a new key for a new request"))
		case row.State == stateDone:
			answer = &store.Answer{Status: int(row.Status), Body: row.Body}
			return nil
		case row.RunID == string(s.run):
			return refuse(errdefs.New(errdefs.Conflict, store.CodeIdempotencyInFlight, "the first request with the idempotency key %q is still running", key).
				WithHint("try again in a moment"))
		}
		return refuse(errdefs.New(errdefs.Conflict, store.CodeIdempotencyUnknown, "the daemon was stopped during the first request with the idempotency key %q", key).
			WithHint("look whether it took effect, then use a new key"))
	}, nil)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// FinishIdempotent stores the answer to a request that BeginIdempotent let pass.
func (s *Store) FinishIdempotent(ctx context.Context, scope, key string, a store.Answer) error {
	body := a.Body
	if body == nil {
		body = []byte{}
	}
	return s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err := q.FinishIdempotency(ctx, db.FinishIdempotencyParams{Status: int64(a.Status), Body: body, Scope: scope, Key: key})
		if err == nil && n == 0 {
			return refuse(errdefs.New(errdefs.Internal, "idempotency_not_begun", "no request with the idempotency key %q is running", key))
		}
		return err
	}, nil)
}

// AbandonIdempotent forgets a request that BeginIdempotent let pass and that had no effect, so that it can be tried again.
func (s *Store) AbandonIdempotent(ctx context.Context, scope, key string) error {
	return s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		return q.DropIdempotency(ctx, db.DropIdempotencyParams{Scope: scope, Key: key})
	}, nil)
}

// ExpireIdempotent forgets requests that began before t, those still running excepted, and returns how many.
func (s *Store) ExpireIdempotent(ctx context.Context, before time.Time) (n int64, err error) {
	err = s.write.do(ctx, func(ctx context.Context, q *db.Queries) error {
		var err error
		n, err = q.ExpireIdempotency(ctx, db.ExpireIdempotencyParams{Before: micros(before), RunID: string(s.run)})
		return err
	}, nil)
	return n, err
}
