-- +goose Up

-- Times are microseconds since 1970, UTC. Ids sort by the time of their making.

-- One row per session that ever was, tombstones included. Folded from events, but for the lease and deleted_at.
CREATE TABLE sessions (
    id                 TEXT PRIMARY KEY NOT NULL,
    name               TEXT NOT NULL,
    goal               TEXT NOT NULL,
    spec               TEXT NOT NULL, -- JSON
    status             TEXT NOT NULL,
    stop_reason        TEXT NOT NULL,
    open_turn          INTEGER NOT NULL,
    workspace_id       TEXT NOT NULL,
    workspace_state    TEXT NOT NULL,
    driver             TEXT NOT NULL,
    sandbox_id         TEXT NOT NULL,
    base_checkpoint_id TEXT NOT NULL,
    parent_id          TEXT NOT NULL, -- '' for none, like the two that follow
    fork_checkpoint_id TEXT NOT NULL,
    fork_cut_seq       INTEGER NOT NULL,
    usage_input        INTEGER NOT NULL,
    usage_output       INTEGER NOT NULL,
    usage_cached       INTEGER NOT NULL,
    usage_cost_micros  INTEGER NOT NULL,
    head_seq           INTEGER NOT NULL,
    head_hash          TEXT NOT NULL,
    lease_owner        TEXT NOT NULL,
    lease_generation   INTEGER NOT NULL,
    last_activity      INTEGER NOT NULL,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    deleted_at         INTEGER -- a tombstone: kept for the forks that read its log
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX sessions_name ON sessions (name) WHERE deleted_at IS NULL;
CREATE INDEX sessions_parent ON sessions (parent_id) WHERE parent_id <> '';

-- The logs. Rows are inserted and never changed; they go only with their whole session.
CREATE TABLE events (
    session_id   TEXT NOT NULL,
    seq          INTEGER NOT NULL,
    id           TEXT NOT NULL,
    type         TEXT NOT NULL,
    actor_id     TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    causation_id TEXT NOT NULL,
    data         TEXT NOT NULL, -- JSON as it was appended
    hash         TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_place ON events (session_id, seq);
CREATE UNIQUE INDEX events_id ON events (id);

CREATE TABLE checkpoints (
    id            TEXT PRIMARY KEY NOT NULL,
    session_id    TEXT NOT NULL,
    kind          TEXT NOT NULL,
    message       TEXT NOT NULL,
    keep          INTEGER NOT NULL,
    cut_seq       INTEGER NOT NULL,
    parent_id     TEXT NOT NULL,
    state         TEXT NOT NULL,
    memory        INTEGER NOT NULL,
    layers        TEXT NOT NULL, -- JSON list of layer ids, bottom first
    memory_bytes  INTEGER NOT NULL,
    file_bytes    INTEGER NOT NULL,
    pause_ms      REAL NOT NULL,
    manifest_hash TEXT NOT NULL,
    fail_code     TEXT NOT NULL,
    fail_message  TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    deleted       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX checkpoints_session ON checkpoints (session_id, id);

-- Who holds which layer: a checkpoint those that it consists of, a session those that its live workspace stands on.
CREATE TABLE layer_refs (
    holder_id TEXT NOT NULL, -- ckpt_… or sess_…
    layer_id  TEXT NOT NULL,
    PRIMARY KEY (holder_id, layer_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_keys (
    scope        TEXT NOT NULL,
    key          TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    run_id       TEXT NOT NULL, -- the opening of the store during which it began
    state        TEXT NOT NULL, -- in_flight, done
    status       INTEGER NOT NULL,
    body         BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;

CREATE INDEX idempotency_age ON idempotency_keys (created_at);

-- +goose Down
DROP TABLE idempotency_keys;
DROP TABLE layer_refs;
DROP TABLE checkpoints;
DROP TABLE events;
DROP TABLE sessions;
