package server_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"gopkg.in/yaml.v3"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/server"
	"perdure.dev/perdure/internal/server/servertest"
	"perdure.dev/perdure/internal/session"
)

func TestSpecIsCheckedIn(t *testing.T) {
	want, err := server.Spec()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("api/openapi.yaml is stale: run go generate ./api")
	}
}

// TestSpecLetsAnswersGrow: a client that is generated from today's description must read the answers of a later daemon, which have more fields.
func TestSpecLetsAnswersGrow(t *testing.T) {
	b, err := server.Spec()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Additional *bool `yaml:"additionalProperties"`
				Properties map[string]struct {
					AnyOf []map[string]string `yaml:"anyOf"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	for _, name := range []string{"Session", "Workspace", "ListSession", "Event", "Exec", "Parent", "ResumeReport", "Problem", "ProblemField", "Limits"} {
		if s, ok := schemas[name]; !ok || s.Additional != nil {
			t.Errorf("%s: described %t, closed %t", name, ok, s.Additional != nil)
		}
	}
	for _, name := range []string{"CreateSession", "StartExec", "Message"} { // where a field that is not known is an error
		if s := schemas[name]; s.Additional == nil || *s.Additional {
			t.Errorf("%s is open", name)
		}
	}
	want := []map[string]string{{"$ref": "#/components/schemas/Parent"}, {"type": "null"}}
	if got := schemas["Session"].Properties["parent"].AnyOf; !reflect.DeepEqual(got, want) {
		t.Errorf("a session's parent is %v", got)
	}
}

func TestEveryStatusIsDocumented(t *testing.T) {
	f, _ := reflect.TypeFor[api.Session]().FieldByName("Status")
	for status, wire := range map[session.Status]string{
		session.StatusIdle: api.StatusIdle, session.StatusRunning: api.StatusRunning, session.StatusFinished: api.StatusFinished,
		session.StatusCanceled: api.StatusCanceled, session.StatusFailed: api.StatusFailed,
	} {
		if string(status) != wire || !strings.Contains(f.Tag.Get("doc"), wire) {
			t.Errorf("%s is %s on the wire and not among %q", status, wire, f.Tag.Get("doc"))
		}
	}
}

// TestSpecWhileServing asks for the description while requests are validated by the same schemas; the race detector would tell.
func TestSpecWhileServing(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if status, _, body := request(t, c, "GET", base+"/openapi.yaml", ""); status != 200 || !strings.Contains(body, "\nopenapi: ") {
				t.Errorf("GET /openapi.yaml = %d, %d bytes", status, len(body))
			}
		})
		wg.Go(func() {
			if status, _, body := request(t, c, "POST", base+"/sessions", `{"nonsense":1}`); status != 400 || !strings.Contains(body, "body.nonsense") {
				t.Errorf("a field that is not known = %d %s", status, body)
			}
		})
	}
	wg.Wait()
}
