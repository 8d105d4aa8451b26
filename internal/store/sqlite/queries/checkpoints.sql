-- name: InsertCheckpoint :exec
INSERT INTO checkpoints (
    id, session_id, kind, message, keep, cut_seq, parent_id, state, memory, layers, memory_bytes, file_bytes, pause_ms,
    manifest_hash, fail_code, fail_message, created_at, deleted
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '', ?, 0);

-- name: SetCheckpointState :execrows
UPDATE checkpoints SET state = ?, fail_code = ?, fail_message = ? WHERE id = ? AND session_id = ?;

-- name: MarkCheckpointDeleted :execrows
UPDATE checkpoints SET deleted = 1 WHERE id = ? AND session_id = ?;

-- name: GetCheckpoint :one
SELECT * FROM checkpoints WHERE id = ?;

-- name: ListCheckpoints :many
SELECT * FROM checkpoints WHERE session_id = ? AND deleted = 0 ORDER BY created_at, id;

-- name: ListAllCheckpoints :many
SELECT * FROM checkpoints WHERE session_id = ? ORDER BY created_at, id;

-- name: CheckpointNeeded :one
SELECT count(*) FROM sessions WHERE fork_checkpoint_id = ? AND deleted_at IS NULL;

-- name: DeleteCheckpointsOf :exec
DELETE FROM checkpoints WHERE session_id = ?;
