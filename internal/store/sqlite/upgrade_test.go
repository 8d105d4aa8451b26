package sqlite_test

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

var dumpSchema = flag.Bool("dump-schema", false, "write the fixture of the newest schema, if it has none yet")

// execSQL runs statements on a data directory that no store has open.
func execSQL(t *testing.T, dir string, statements string) {
	t.Helper()
	raw := rawDB(t, dir)
	if _, err := raw.ExecContext(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
}

func rawDB(t *testing.T, dir string) *sql.DB {
	t.Helper()
	raw, err := sql.Open("sqlite", "file:"+filepath.Join(dir, dbFile))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// story fills a store with something of everything, for the fixtures.
func story(t *testing.T, dir string) {
	s := open(t, dir)
	sid := eventtest.NewSession(t, s, "old")
	add(t, s, sid, event.MessageUser, event.MessageUserData{Text: "it's \"quoted\" é <&>\n", Delivery: event.Queue})
	c := checkpoint(t, s, sid, "then", "l1", "l2")
	add(t, s, sid, event.CheckpointDurable, event.CheckpointDurableData{CheckpointID: c})
	fork(t, s, "old fork", c)
	add(t, s, sid, event.SessionRolledBack, event.SessionRolledBackData{CheckpointID: c, CutSession: sid, CutSeq: 2})
	if _, err := s.Acquire(t.Context(), sid, id.NewLease()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeginIdempotent(t.Context(), "POST /x", "key", "hash"); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishIdempotent(t.Context(), "POST /x", "key", store.Answer{Status: 201, Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// dump writes a database as SQL.
func dump(t *testing.T, dir string) string {
	t.Helper()
	raw := rawDB(t, dir)
	defer raw.Close()
	var out strings.Builder
	texts := func(query string) (list []string) {
		rows, err := raw.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
		return list
	}
	for _, stmt := range texts("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC, name") {
		out.WriteString(stmt + ";\n\n")
	}
	for _, table := range texts("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name") {
		var quoted []string
		for _, column := range texts(fmt.Sprintf("SELECT name FROM pragma_table_info('%s')", table)) {
			quoted = append(quoted, "quote("+column+")")
		}
		for _, row := range texts(fmt.Sprintf("SELECT %s FROM %s", strings.Join(quoted, "||','||"), table)) {
			fmt.Fprintf(&out, "INSERT INTO %s VALUES (%s);\n", table, row)
		}
	}
	return out.String()
}

// Data of every released schema opens, is upgraded, and is whole. Fixtures never change; a new migration adds one.
func TestUpgradeFromEverySchema(t *testing.T) {
	migrations, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(migrations) == 0 {
		t.Fatal(err)
	}
	for i := range migrations {
		fixture := fmt.Sprintf("testdata/schema/v%d.sql", i+1)
		t.Run(fixture, func(t *testing.T) {
			raw, err := os.ReadFile(fixture)
			if os.IsNotExist(err) && *dumpSchema && i == len(migrations)-1 {
				made := t.TempDir()
				story(t, made)
				raw = []byte(dump(t, made))
				if err = os.MkdirAll("testdata/schema", 0o755); err == nil {
					err = os.WriteFile(fixture, raw, 0o644)
				}
			}
			if err != nil {
				t.Fatalf("%v (a new migration? run the test with -dump-schema)", err)
			}
			dir := t.TempDir()
			execSQL(t, dir, string(raw))
			s := open(t, dir)
			for _, name := range []string{"old", "old fork"} {
				row, err := s.Session(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				verify(t, s, row.ID)
				if tr, err := session.Load(t.Context(), s, row.ID); err != nil || len(tr.State().Pending) != 1 {
					t.Errorf("%s: %v", name, err)
				}
				if name == "old" {
					c, err := s.CheckpointByRef(t.Context(), row.ID, "then")
					if err != nil || c.State != session.CheckpointDurable || row.Lease != 1 {
						t.Errorf("%+v, %v, lease %d", c, err, row.Lease)
					}
					eventtest.Append(t, s, event.Append{Session: row.ID, Lease: 1, Expected: row.HeadSeq, Events: []event.Draft{eventtest.User("goes on")}})
				}
			}
			if got := layers(t, s); got != "[l1 l2]" {
				t.Errorf("layers %s", got)
			}
		})
	}
}

// Model calls that were answered before rows counted them count too.
func TestUpgradeCountsTheStepsOfOldLogs(t *testing.T) {
	raw, err := os.ReadFile("testdata/schema/v1.sql")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	execSQL(t, dir, string(raw)+`
		INSERT INTO events SELECT id, 1001, 'evt_a', 'model.responded', 'agent', 0, '', '{}', '' FROM sessions WHERE name = 'old';
		INSERT INTO events SELECT id, 1002, 'evt_b', 'model.responded', 'agent', 0, '', '{}', '' FROM sessions WHERE name = 'old';`)
	row, err := open(t, dir).Session(t.Context(), "old")
	if err != nil || row.Steps != 2 {
		t.Fatalf("%d steps, %v", row.Steps, err)
	}
}

// What a workspace has to do without stood only in the log; its row says it since the third schema.
func TestUpgradeFillsInWhatIsMissing(t *testing.T) {
	raw, err := os.ReadFile("testdata/schema/v2.sql")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	execSQL(t, dir, string(raw)+`INSERT INTO events (session_id, seq, id, type, actor_id, created_at, causation_id, data, hash)
		SELECT id, 90 + n, 'evt_' || n, 'workspace.started', 'tester', 0, '', data, '' FROM sessions, (
			SELECT 1 AS n, '{"sandbox_id":"a","driver":"process","missing":["old"]}' AS data UNION SELECT 2, '{"sandbox_id":"b","driver":"process","missing":["isolation"]}'
		) WHERE name = 'old';`)
	s := open(t, dir)
	for name, want := range map[string]string{"old": "[isolation]", "old fork": "[]"} {
		row, err := s.Session(t.Context(), name)
		if err != nil || fmt.Sprint(row.Workspace.Missing) != want {
			t.Errorf("%s misses %v, %v; want %s", name, row.Workspace.Missing, err, want)
		}
	}
}
