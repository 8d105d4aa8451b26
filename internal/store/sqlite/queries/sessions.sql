-- name: InsertSession :exec
INSERT INTO sessions (
    id, name, goal, spec, status, stop_reason, open_turn, workspace_id, workspace_state, driver, sandbox_id, base_checkpoint_id,
    parent_id, fork_checkpoint_id, fork_cut_seq, usage_input, usage_output, usage_cached, usage_cost_micros, usage_steps, workspace_missing, head_seq, head_hash,
    lease_owner, lease_generation, last_activity, created_at, updated_at, deleted_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0, ?, ?, ?, ?);

-- name: UpdateSession :exec
UPDATE sessions SET
    status = ?, stop_reason = ?, open_turn = ?, workspace_state = ?, driver = ?, sandbox_id = ?, base_checkpoint_id = ?,
    usage_input = ?, usage_output = ?, usage_cached = ?, usage_cost_micros = ?, usage_steps = ?, workspace_missing = ?, head_seq = ?, head_hash = ?,
    last_activity = ?, updated_at = ?, spec = ?
WHERE id = ?;

-- name: GetSession :one
SELECT * FROM sessions WHERE id = ?;

-- name: GetSessionByName :one
SELECT * FROM sessions WHERE name = ? AND deleted_at IS NULL;

-- name: GetHead :one
SELECT head_seq, head_hash FROM sessions WHERE id = ? AND deleted_at IS NULL;

-- name: ListSessions :many
SELECT * FROM sessions
WHERE deleted_at IS NULL
  AND id > sqlc.arg(after)
  AND (CAST(sqlc.arg(prefix) AS TEXT) = '' OR instr(name, CAST(sqlc.arg(prefix) AS TEXT)) = 1)
  AND (CAST(sqlc.arg(status) AS TEXT) = '' OR status = CAST(sqlc.arg(status) AS TEXT))
  AND (CAST(sqlc.arg(parent) AS TEXT) = '' OR parent_id = CAST(sqlc.arg(parent) AS TEXT))
ORDER BY id
LIMIT sqlc.arg(max);

-- name: SetLease :exec
UPDATE sessions SET lease_owner = ?, lease_generation = ? WHERE id = ?;

-- name: BurySession :exec
UPDATE sessions SET deleted_at = ?, lease_owner = '', lease_generation = lease_generation + 1 WHERE id = ?;

-- name: DeleteSession :exec
DELETE FROM sessions WHERE id = ?;

-- name: CountForks :one
SELECT count(*) FROM sessions WHERE parent_id = ?;

-- name: Unreachable :many
SELECT id FROM sessions AS s
WHERE s.deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions AS f WHERE f.parent_id = s.id);
