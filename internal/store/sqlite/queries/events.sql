-- name: InsertEvent :exec
INSERT INTO events (session_id, seq, id, type, actor_id, created_at, causation_id, data, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: ReadEvents :many
SELECT session_id, seq, id, type, actor_id, created_at, causation_id, data, hash
FROM events
WHERE session_id = sqlc.arg(session_id) AND seq > sqlc.arg(after)
ORDER BY seq
LIMIT sqlc.arg(max);

-- name: DeleteEventsFrom :exec
DELETE FROM events WHERE session_id = ? AND seq >= ?;

-- name: LastSeq :one
SELECT seq FROM events WHERE session_id = ? ORDER BY seq DESC LIMIT 1;

-- name: GetEvent :one
SELECT session_id, seq, id, type, actor_id, created_at, causation_id, data, hash FROM events WHERE id = ?;
