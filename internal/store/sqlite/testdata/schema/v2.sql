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

CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);

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

CREATE TABLE layer_refs (
    holder_id TEXT NOT NULL, -- ckpt_… or sess_…
    layer_id  TEXT NOT NULL,
    PRIMARY KEY (holder_id, layer_id)
) STRICT, WITHOUT ROWID;

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
, usage_steps INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

CREATE INDEX checkpoints_session ON checkpoints (session_id, id);

CREATE UNIQUE INDEX events_id ON events (id);

CREATE UNIQUE INDEX events_place ON events (session_id, seq);

CREATE INDEX idempotency_age ON idempotency_keys (created_at);

CREATE UNIQUE INDEX sessions_name ON sessions (name) WHERE deleted_at IS NULL;

CREATE INDEX sessions_parent ON sessions (parent_id) WHERE parent_id <> '';

INSERT INTO checkpoints VALUES ('ckpt_01m8q21f7t0xhkf6p2a0xd67w9','sess_01m8q21f7rs056gzk5gp8fdm5e','user','then',0,2,'','durable',1,'["l1","l2"]',10,20,1.5,'abc','','',1796070227194404,0);
INSERT INTO events VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e',1,'evt_01m8q21f7rs056gzk5gsd3vsp8','session.created','tester',1796070227192438,'','{"name":"old","workspace_id":"ws_01m8q21f7rs056gzk5gpvggqd6","spec":{"model":"scripted:none","image":"host","driver":"process","limits":{}}}','58701be007c68b3dcde2a346844149a09639372df940bd1e2cc675b5c94ea88f');
INSERT INTO events VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e',2,'evt_01m8q21f7sbr1xdd1abnrrygkt','message.user','tester',1796070227193539,'','{"text":"it''s \"quoted\" é <&>\n","delivery":"queue"}','5fa112dd72f826388af605f07f6e8dc945a5df886269bd2af790ba3bde0f843f');
INSERT INTO events VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e',3,'evt_01m8q21f7t0xhkf6p2a405yfyx','checkpoint.created','tester',1796070227194404,'','{"checkpoint_id":"ckpt_01m8q21f7t0xhkf6p2a0xd67w9","kind":"user","message":"then","cut_seq":2,"memory":true,"layers":["l1","l2"],"pause_ms":1.5,"memory_bytes":10,"file_bytes":20,"manifest_hash":"abc"}','b55bae1b8fe877efb9468d0fa652418bf1512b42e0086b144fe52dd12dcb6c9f');
INSERT INTO events VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e',4,'evt_01m8q21f7v5f4nb2mjnphmywb6','checkpoint.durable','tester',1796070227195207,'','{"checkpoint_id":"ckpt_01m8q21f7t0xhkf6p2a0xd67w9"}','7792beab14b09652b3b29a980198c84a1797c95c57ac09e0789124d20b02aaee');
INSERT INTO events VALUES ('sess_01m8q21f7v5f4nb2mjnx8bfv2a',1,'evt_01m8q21f7v5f4nb2mjny6v0fa8','session.created','tester',1796070227196091,'','{"name":"old fork","workspace_id":"ws_01m8q21f7v5f4nb2mjntdym0c7","spec":{"model":"scripted:none","image":"host","driver":"process","limits":{}},"fork":{"parent_id":"sess_01m8q21f7rs056gzk5gp8fdm5e","checkpoint_id":"ckpt_01m8q21f7t0xhkf6p2a0xd67w9","cut_seq":2}}','680181a80dec227493264a41601f97316b320681fc01233053acf9733dd19708');
INSERT INTO events VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e',5,'evt_01m8q21f7wttey4vx7rs290spd','session.rolled_back','tester',1796070227197058,'','{"checkpoint_id":"ckpt_01m8q21f7t0xhkf6p2a0xd67w9","cut_session":"sess_01m8q21f7rs056gzk5gp8fdm5e","cut_seq":2,"undo_checkpoint_id":""}','16b74d49cdbd8fbaa414e49f8bda8c0a9791b11a00383c2129317d7cac3065b9');
INSERT INTO goose_db_version VALUES (1,0,1,'2026-11-30 20:23:47');
INSERT INTO goose_db_version VALUES (2,1,1,'2026-11-30 20:23:47');
INSERT INTO goose_db_version VALUES (3,2,1,'2026-11-30 20:23:47');
INSERT INTO idempotency_keys VALUES ('POST /x','key','hash','own_01m8q21f5ypnvszekzjt99mmb4','done',201,X'626F6479',1796070227198225);
INSERT INTO layer_refs VALUES ('ckpt_01m8q21f7t0xhkf6p2a0xd67w9','l1');
INSERT INTO layer_refs VALUES ('ckpt_01m8q21f7t0xhkf6p2a0xd67w9','l2');
INSERT INTO layer_refs VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e','l1');
INSERT INTO layer_refs VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e','l2');
INSERT INTO layer_refs VALUES ('sess_01m8q21f7v5f4nb2mjnx8bfv2a','l1');
INSERT INTO layer_refs VALUES ('sess_01m8q21f7v5f4nb2mjnx8bfv2a','l2');
INSERT INTO sessions VALUES ('sess_01m8q21f7rs056gzk5gp8fdm5e','old','','{"model":"scripted:none","image":"host","driver":"process","limits":{}}','idle','rolled_back',0,'ws_01m8q21f7rs056gzk5gpvggqd6','none','process','','ckpt_01m8q21f7t0xhkf6p2a0xd67w9','','',0,0,0,0,0,5,'16b74d49cdbd8fbaa414e49f8bda8c0a9791b11a00383c2129317d7cac3065b9','own_01m8q21f7xk188gmngf0h4w6eq',1,1796070227197058,1796070227192438,1796070227197058,NULL,0);
INSERT INTO sessions VALUES ('sess_01m8q21f7v5f4nb2mjnx8bfv2a','old fork','','{"model":"scripted:none","image":"host","driver":"process","limits":{}}','idle','',0,'ws_01m8q21f7v5f4nb2mjntdym0c7','none','process','','ckpt_01m8q21f7t0xhkf6p2a0xd67w9','sess_01m8q21f7rs056gzk5gp8fdm5e','ckpt_01m8q21f7t0xhkf6p2a0xd67w9',2,0,0,0,0,1,'680181a80dec227493264a41601f97316b320681fc01233053acf9733dd19708','',0,1796070227196091,1796070227196091,1796070227196091,NULL,0);
