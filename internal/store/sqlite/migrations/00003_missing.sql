-- +goose Up

ALTER TABLE sessions ADD COLUMN workspace_missing TEXT NOT NULL DEFAULT '[]'; -- JSON list: what the machine cannot give the workspace

UPDATE sessions SET workspace_missing = coalesce((
    SELECT json_extract(events.data, '$.missing') FROM events
    WHERE events.session_id = sessions.id AND events.type = 'workspace.started' ORDER BY events.seq DESC LIMIT 1
), '[]');

-- +goose Down
ALTER TABLE sessions DROP COLUMN workspace_missing;
