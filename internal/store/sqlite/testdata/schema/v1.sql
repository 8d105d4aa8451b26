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
) STRICT, WITHOUT ROWID;

CREATE INDEX checkpoints_session ON checkpoints (session_id, id);

CREATE UNIQUE INDEX events_id ON events (id);

CREATE UNIQUE INDEX events_place ON events (session_id, seq);

CREATE INDEX idempotency_age ON idempotency_keys (created_at);

CREATE UNIQUE INDEX sessions_name ON sessions (name) WHERE deleted_at IS NULL;

CREATE INDEX sessions_parent ON sessions (parent_id) WHERE parent_id <> '';

INSERT INTO checkpoints VALUES ('ckpt_01m8m7p52zq7fg4k76sy1wekne','sess_01m8m7p52tdk7bhw1kpj59yfv6','user','then',0,2,'','durable',1,'["l1","l2"]',10,20,1.5,'abc','','',1795975484511553,0);
INSERT INTO events VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6',1,'evt_01m8m7p52tdk7bhw1kprpx5z4p','session.created','tester',1795975484506298,'','{"name":"old","workspace_id":"ws_01m8m7p52tdk7bhw1kpmsynzym","spec":{"model":"scripted:none","image":"host","driver":"process","limits":{}}}','a5d22080d23ea2ad855c33818ec582d7ee49ef29f73813392fd924a0ee21ca88');
INSERT INTO events VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6',2,'evt_01m8m7p52v3z3kh9zj65h0ksrr','message.user','tester',1795975484507211,'','{"text":"it''s \"quoted\" é <&>\n","delivery":"queue"}','e10cc817ff598266fac719f285069e396c8b10b07f3f9418d315b9419669f4df');
INSERT INTO events VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6',3,'evt_01m8m7p52zq7fg4k76t0c54exv','checkpoint.created','tester',1795975484511553,'','{"checkpoint_id":"ckpt_01m8m7p52zq7fg4k76sy1wekne","kind":"user","message":"then","cut_seq":2,"memory":true,"layers":["l1","l2"],"pause_ms":1.5,"memory_bytes":10,"file_bytes":20,"manifest_hash":"abc"}','bbb086921e1e844770907266eae9ded570930e6055e047c23aa01748b23dca25');
INSERT INTO events VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6',4,'evt_01m8m7p53097z6tenfpan2s7rv','checkpoint.durable','tester',1795975484513026,'','{"checkpoint_id":"ckpt_01m8m7p52zq7fg4k76sy1wekne"}','b7810dc995bc1051a369e62c4ddb1a13414b20bc3fcdcb745f2655e84e1ab547');
INSERT INTO events VALUES ('sess_01m8m7p532ndqmt841gprfag6h',1,'evt_01m8m7p532ndqmt841gt97bdyq','session.created','tester',1795975484514375,'','{"name":"old fork","workspace_id":"ws_01m8m7p532ndqmt841gnq5k9xk","spec":{"model":"scripted:none","image":"host","driver":"process","limits":{}},"fork":{"parent_id":"sess_01m8m7p52tdk7bhw1kpj59yfv6","checkpoint_id":"ckpt_01m8m7p52zq7fg4k76sy1wekne","cut_seq":2}}','34170795ea4112bec3419e89d0ef82a4f223449548ca938d08bbb3c08dfe924f');
INSERT INTO events VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6',5,'evt_01m8m7p532ndqmt841gvd7pmhe','session.rolled_back','tester',1795975484517505,'','{"checkpoint_id":"ckpt_01m8m7p52zq7fg4k76sy1wekne","cut_session":"sess_01m8m7p52tdk7bhw1kpj59yfv6","cut_seq":2,"undo_checkpoint_id":""}','62766129324eb70c30ba5c428c6e0473ea4ca3baaf93ac93b8a69f05e57930f2');
INSERT INTO goose_db_version VALUES (1,0,1,'2026-11-29 18:04:44');
INSERT INTO goose_db_version VALUES (2,1,1,'2026-11-29 18:04:44');
INSERT INTO idempotency_keys VALUES ('POST /x','key','hash','own_01m8m7p521s4tmp9pvbcvwpxqa','done',201,X'626F6479',1795975484521402);
INSERT INTO layer_refs VALUES ('ckpt_01m8m7p52zq7fg4k76sy1wekne','l1');
INSERT INTO layer_refs VALUES ('ckpt_01m8m7p52zq7fg4k76sy1wekne','l2');
INSERT INTO layer_refs VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6','l1');
INSERT INTO layer_refs VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6','l2');
INSERT INTO layer_refs VALUES ('sess_01m8m7p532ndqmt841gprfag6h','l1');
INSERT INTO layer_refs VALUES ('sess_01m8m7p532ndqmt841gprfag6h','l2');
INSERT INTO sessions VALUES ('sess_01m8m7p52tdk7bhw1kpj59yfv6','old','','{"model":"scripted:none","image":"host","driver":"process","limits":{}}','idle','rolled_back',0,'ws_01m8m7p52tdk7bhw1kpmsynzym','none','process','','ckpt_01m8m7p52zq7fg4k76sy1wekne','','',0,0,0,0,0,5,'62766129324eb70c30ba5c428c6e0473ea4ca3baaf93ac93b8a69f05e57930f2','own_01m8m7p537ec03c2p0zn0q7w86',1,1795975484517505,1795975484506298,1795975484517505,NULL);
INSERT INTO sessions VALUES ('sess_01m8m7p532ndqmt841gprfag6h','old fork','','{"model":"scripted:none","image":"host","driver":"process","limits":{}}','idle','',0,'ws_01m8m7p532ndqmt841gnq5k9xk','none','process','','ckpt_01m8m7p52zq7fg4k76sy1wekne','sess_01m8m7p52tdk7bhw1kpj59yfv6','ckpt_01m8m7p52zq7fg4k76sy1wekne',2,0,0,0,0,1,'34170795ea4112bec3419e89d0ef82a4f223449548ca938d08bbb3c08dfe924f','',0,1795975484514375,1795975484514375,1795975484514375,NULL);
