package event_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gowebpki/jcs"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

func filled(t event.Type) any {
	p, n := event.NewData(t), 0
	fill(reflect.ValueOf(p).Elem(), &n)
	return p
}

// Every type has a payload that comes back unchanged, as a pointer and as a value.
func TestEveryTypeRoundTrips(t *testing.T) {
	for _, typ := range event.Types() {
		if event.NewData(typ) == nil {
			t.Errorf("%s has no payload", typ)
			continue
		}
		want := filled(typ)
		for _, data := range []any{want, reflect.ValueOf(want).Elem().Interface()} {
			raw, canonical, err := event.Encode(event.Draft{Type: typ, Data: data})
			if err != nil {
				t.Errorf("%s: %v", typ, err)
				continue
			}
			for _, form := range []json.RawMessage{raw, canonical} {
				got, err := event.Decode(event.Event{Type: typ, Data: form})
				if err != nil || !equalJSON(t, got, want) {
					t.Errorf("%s: got %+v (%v), want %+v", typ, got, err, want)
				}
			}
		}
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	var forms [2]string
	for i, v := range []any{a, b} {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		c, err := event.Canonical(raw)
		if err != nil {
			t.Fatal(err)
		}
		forms[i] = string(c)
	}
	return forms[0] == forms[1]
}

// The list of types is the list of constants, and each payload struct belongs to a type.
func TestTablesAreComplete(t *testing.T) {
	fset := token.NewFileSet()
	types, payloads := map[string]bool{}, map[string]bool{}
	for _, name := range []string{"types.go", "payloads.go"} {
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if id, ok := n.Type.(*ast.Ident); ok && id.Name == "Type" {
					types[strings.Trim(n.Values[0].(*ast.BasicLit).Value, `"`)] = true
				}
			case *ast.TypeSpec:
				if strings.HasSuffix(n.Name.Name, "Data") {
					payloads[n.Name.Name] = true
				}
			}
			return true
		})
	}
	for _, typ := range event.Types() {
		if !types[string(typ)] {
			t.Errorf("%s is listed twice or is no constant", typ)
		}
		delete(types, string(typ))
		delete(payloads, reflect.TypeOf(event.NewData(typ)).Elem().Name())
	}
	if len(types) > 0 || len(payloads) > 0 {
		t.Errorf("not listed in Types: %v; payloads without a type: %v", types, payloads)
	}
}

func TestDecodeDataWantsTheRightType(t *testing.T) {
	e := event.Event{Type: event.MessageUser, Data: json.RawMessage(`{"text":"hi","delivery":"steer"}`)}
	if d, err := event.DecodeData[event.MessageUserData](e); err != nil || d.Text != "hi" || d.Delivery != event.Steer {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := event.DecodeData[event.TurnStartedData](e); errdefs.CodeOf(err) != event.CodeInvalid {
		t.Errorf("got %v", err)
	}
	e.Data = json.RawMessage(`{"text":`)
	if _, err := event.Decode(e); errdefs.CodeOf(err) != event.CodeLogCorrupt {
		t.Errorf("got %v", err)
	}
	e.Type = "who.knows"
	if _, err := event.Decode(e); errdefs.CodeOf(err) != event.CodeLogCorrupt || errdefs.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

// The envelope that is written by hand is what the general canonicaliser makes of the event.
func TestHashIsOfTheCanonicalEvent(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 120_456_789, time.FixedZone("CET", 3600))
	for _, e := range []event.Event{
		{ID: "evt_1", Seq: 1, Type: event.MessageUser, SessionID: "sess_1", CreatedAt: at, Data: json.RawMessage(` { "text" : "x", "delivery":"queue" } `)},
		{ID: "evt_2", Seq: 1 << 52, Type: event.ToolRequested, SessionID: "sess_1", ActorID: "a\"\\\b\t\n\f\r\x01é\u2028<&>\xff", CausationID: "evt_1",
			CreatedAt: at.Truncate(time.Second), Data: json.RawMessage(`{"b":1.0,"a":1e21,"é":"\u00e9","\ud83d\ude00":0,"\ufb33":-0}`)},
	} {
		form := e
		form.CreatedAt = event.Stamp(e.CreatedAt)
		raw, err := json.Marshal(form)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatal(err)
		}
		delete(members, "hash")
		if raw, err = json.Marshal(members); err != nil {
			t.Fatal(err)
		}
		canonical, err := jcs.Transform(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := event.Hash("prev", e)
		if want := event.SumForTest("prev" + string(canonical)); err != nil || got != want {
			t.Errorf("event %s: got %s (%v), want %s over %s", e.ID, got, err, want, canonical)
		}
	}
}

func TestHashDependsOnEverything(t *testing.T) {
	base := event.Event{ID: "evt_1", Seq: 1, Type: event.MessageUser, SessionID: "sess_1", ActorID: "a", CausationID: "evt_0", CreatedAt: time.Unix(1, 0), Data: json.RawMessage(`{"text":"x"}`)}
	seen := map[string]string{}
	add := func(name, prev string, e event.Event) {
		h, err := event.Hash(prev, e)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
	add("base", "", base)
	add("prev", "00", base)
	for i := range reflect.TypeFor[event.Event]().NumField() {
		e := base
		switch f := reflect.ValueOf(&e).Elem().Field(i); v := f.Addr().Interface().(type) {
		case *time.Time:
			*v = v.Add(time.Microsecond)
		case *json.RawMessage:
			*v = json.RawMessage(`{"text":"y"}`)
		case *event.Seq:
			*v = 2
		default:
			f.SetString(f.String() + "x")
		}
		if name := reflect.TypeFor[event.Event]().Field(i).Name; name != "Hash" {
			add(name, "", e)
		}
	}
}
