-- +goose Up

ALTER TABLE sessions ADD COLUMN usage_steps INTEGER NOT NULL DEFAULT 0; -- model calls that were answered

UPDATE sessions SET usage_steps = (
    SELECT count(*) FROM events WHERE events.session_id = sessions.id AND events.type = 'model.responded'
);

-- +goose Down
ALTER TABLE sessions DROP COLUMN usage_steps;
