package event_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"perdure.dev/perdure/internal/event"
)

var addGolden = flag.Bool("add-golden", false, "write golden files for types that have none; existing ones never change")

const goldenDir = "testdata/golden/v1"

func goldenFile(t event.Type) string { return filepath.Join(goldenDir, string(t)+".json") }

// Logs written by version 1 stay readable: each file is an event as it was stored then. It still decodes, with every member
// known, nothing lost when it is written again, and the hash that it had.
func TestGoldenEventsStayReadable(t *testing.T) {
	for i, typ := range event.Types() {
		raw, err := os.ReadFile(goldenFile(typ))
		if os.IsNotExist(err) && *addGolden {
			raw, err = writeGolden(t, typ, i)
		}
		if err != nil {
			t.Errorf("%s: %v (a new type? run the test with -add-golden)", typ, err)
			continue
		}
		var e event.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(e.Data))
		dec.DisallowUnknownFields()
		p := event.NewData(typ)
		if err := dec.Decode(p); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		if !equalJSON(t, p, e.Data) && !onlyAdds(t, p, e.Data) {
			t.Errorf("%s: written again it is not what it was", typ)
		}
		if hash, err := event.Hash("", e); err != nil || hash != e.Hash {
			t.Errorf("%s: hash %s (%v), want %s", typ, hash, err, e.Hash)
		}
	}
}

// onlyAdds reports whether the payload written again has all members that it had, and perhaps newer ones.
func onlyAdds(t *testing.T, p any, old json.RawMessage) bool {
	t.Helper()
	now, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal(now, &a) != nil || json.Unmarshal(old, &b) != nil {
		return false
	}
	return contains(a, b)
}

func contains(now, old any) bool {
	switch o := old.(type) {
	case map[string]any:
		n, ok := now.(map[string]any)
		for k, v := range o {
			ok = ok && contains(n[k], v)
		}
		return ok
	case []any:
		n, ok := now.([]any)
		ok = ok && len(n) == len(o)
		for i := range o {
			ok = ok && contains(n[i], o[i])
		}
		return ok
	}
	return now == old
}

func writeGolden(t *testing.T, typ event.Type, n int) ([]byte, error) {
	t.Helper()
	data, _, err := event.Encode(event.Draft{Type: typ, Data: filled(typ)})
	if err != nil {
		return nil, err
	}
	e := event.Event{
		ID: "evt_01jzzzzzzzzzzzzzzzzzzzzzzz", Seq: event.Seq(n + 1), Type: typ, SessionID: "sess_01jzzzzzzzzzzzzzzzzzzzzzzz", ActorID: "actor_local",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 678_000*(n+1), time.UTC), CausationID: "evt_01jyyyyyyyyyyyyyyyyyyyyyyy", Data: data,
	}
	if e.Hash, err = event.Hash("", e); err != nil {
		return nil, err
	}
	raw, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		return nil, err
	}
	return raw, os.WriteFile(goldenFile(typ), append(raw, '\n'), 0o644)
}
