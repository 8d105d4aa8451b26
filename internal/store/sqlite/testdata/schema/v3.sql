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
, usage_steps INTEGER NOT NULL DEFAULT 0, workspace_missing TEXT NOT NULL DEFAULT '[]') STRICT, WITHOUT ROWID;

CREATE INDEX checkpoints_session ON checkpoints (session_id, id);

CREATE UNIQUE INDEX events_id ON events (id);

CREATE UNIQUE INDEX events_place ON events (session_id, seq);

CREATE INDEX idempotency_age ON idempotency_keys (created_at);

CREATE UNIQUE INDEX sessions_name ON sessions (name) WHERE deleted_at IS NULL;

CREATE INDEX sessions_parent ON sessions (parent_id) WHERE parent_id <> '';

INSERT INTO checkpoints VALUES ('ckpt_01m8q2c2ygmzv4t9m4asyc9vp8','sess_01m8q2c2yag5ynvp3zyv6ec1ka','user','then',0,2,'','durable',1,'["l1","l2"]',10,20,1.5,'abc','','',1796070575056493,0);
INSERT INTO events VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka',1,'evt_01m8q2c2yag5ynvp3zyxg0jawv','session.created','tester',1796070575050873,'','{"name":"old","workspace_id":"ws_01m8q2c2yag5ynvp3zywbv23ze","spec":{"model":"scripted:none","image":"host","driver":"process","limits":{}}}','c02a28b6bbaf98e19064b4d12a3c75c30b69f1d383dcfe7b2232967ad5e0c9da');
INSERT INTO events VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka',2,'evt_01m8q2c2ybyappwgxf6b94t3av','message.user','tester',1796070575052045,'','{"text":"it''s \"quoted\" é <&>\n","delivery":"queue"}','108890d658d56ff0c9bde3093c032c4d0e2278d873667219e44603c16444ec7f');
INSERT INTO events VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka',3,'evt_01m8q2c2ygmzv4t9m4axnhrxhp','checkpoint.created','tester',1796070575056493,'','{"checkpoint_id":"ckpt_01m8q2c2ygmzv4t9m4asyc9vp8","kind":"user","message":"then","cut_seq":2,"memory":true,"layers":["l1","l2"],"pause_ms":1.5,"memory_bytes":10,"file_bytes":20,"manifest_hash":"abc"}','85fc3b79402ce14934bf9fe4dbef2f2cbd3a32b9271e543374553ed9f1b289c1');
INSERT INTO events VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka',4,'evt_01m8q2c2yhvrmnjwynpqjzkkza','checkpoint.durable','tester',1796070575057625,'','{"checkpoint_id":"ckpt_01m8q2c2ygmzv4t9m4asyc9vp8"}','b0aec5228a81b3088b686cbe39ac0c9140588bc48007622bfcad186c68aa2645');
INSERT INTO events VALUES ('sess_01m8q2c2ykr67wb0jaty3pq1np',1,'evt_01m8q2c2ykr67wb0jav1d00emt','session.created','tester',1796070575059947,'','{"name":"old fork","workspace_id":"ws_01m8q2c2ykr67wb0jattg628m2","spec":{"model":"scripted:none","image":"host","driver":"process","limits":{}},"fork":{"parent_id":"sess_01m8q2c2yag5ynvp3zyv6ec1ka","checkpoint_id":"ckpt_01m8q2c2ygmzv4t9m4asyc9vp8","cut_seq":2}}','405316206ced7e8aca90ed4f4fdefff3a3ec71a95fcff14331cd5dde18316d2b');
INSERT INTO events VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka',5,'evt_01m8q2c2yn5rk49xjfjhyzydp3','session.rolled_back','tester',1796070575061221,'','{"checkpoint_id":"ckpt_01m8q2c2ygmzv4t9m4asyc9vp8","cut_session":"sess_01m8q2c2yag5ynvp3zyv6ec1ka","cut_seq":2,"undo_checkpoint_id":""}','3e7a98866c764c103683e04addc32415ab29d02c2b4cadbcfcd18b84b9d4afd0');
INSERT INTO goose_db_version VALUES (1,0,1,'2026-11-30 20:29:35');
INSERT INTO goose_db_version VALUES (2,1,1,'2026-11-30 20:29:35');
INSERT INTO goose_db_version VALUES (3,2,1,'2026-11-30 20:29:35');
INSERT INTO goose_db_version VALUES (4,3,1,'2026-11-30 20:29:35');
INSERT INTO idempotency_keys VALUES ('POST /x','key','hash','own_01m8q2c2xjknap9zb229s6y46e','done',201,X'626F6479',1796070575062504);
INSERT INTO layer_refs VALUES ('ckpt_01m8q2c2ygmzv4t9m4asyc9vp8','l1');
INSERT INTO layer_refs VALUES ('ckpt_01m8q2c2ygmzv4t9m4asyc9vp8','l2');
INSERT INTO layer_refs VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka','l1');
INSERT INTO layer_refs VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka','l2');
INSERT INTO layer_refs VALUES ('sess_01m8q2c2ykr67wb0jaty3pq1np','l1');
INSERT INTO layer_refs VALUES ('sess_01m8q2c2ykr67wb0jaty3pq1np','l2');
INSERT INTO sessions VALUES ('sess_01m8q2c2yag5ynvp3zyv6ec1ka','old','','{"model":"scripted:none","image":"host","driver":"process","limits":{}}','idle','rolled_back',0,'ws_01m8q2c2yag5ynvp3zywbv23ze','none','process','','ckpt_01m8q2c2ygmzv4t9m4asyc9vp8','','',0,0,0,0,0,5,'3e7a98866c764c103683e04addc32415ab29d02c2b4cadbcfcd18b84b9d4afd0','own_01m8q2c2yn5rk49xjfjmawzyxb',1,1796070575061221,1796070575050873,1796070575061221,NULL,0,'[]');
INSERT INTO sessions VALUES ('sess_01m8q2c2ykr67wb0jaty3pq1np','old fork','','{"model":"scripted:none","image":"host","driver":"process","limits":{}}','idle','',0,'ws_01m8q2c2ykr67wb0jattg628m2','none','process','','ckpt_01m8q2c2ygmzv4t9m4asyc9vp8','sess_01m8q2c2yag5ynvp3zyv6ec1ka','ckpt_01m8q2c2ygmzv4t9m4asyc9vp8',2,0,0,0,0,1,'405316206ced7e8aca90ed4f4fdefff3a3ec71a95fcff14331cd5dde18316d2b','',0,1796070575059947,1796070575059947,1796070575059947,NULL,0,'[]');
