-- name: GetIdempotency :one
SELECT * FROM idempotency_keys WHERE scope = ? AND key = ?;

-- name: InsertIdempotency :exec
INSERT INTO idempotency_keys (scope, key, request_hash, run_id, state, status, body, created_at)
VALUES (?, ?, ?, ?, 'in_flight', 0, x'', ?);

-- name: FinishIdempotency :execrows
UPDATE idempotency_keys SET state = 'done', status = ?, body = ? WHERE scope = ? AND key = ? AND state = 'in_flight';

-- name: DropIdempotency :exec
DELETE FROM idempotency_keys WHERE scope = ? AND key = ? AND state = 'in_flight';

-- name: ExpireIdempotency :execrows
DELETE FROM idempotency_keys WHERE created_at < sqlc.arg(before) AND (state = 'done' OR run_id <> sqlc.arg(run_id));
