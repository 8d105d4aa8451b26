package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/server/servertest"
)

func unixClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

// request makes a request and returns status, header and body.
func request(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return res.StatusCode, res.Header, string(data)
}

func problemIn(t *testing.T, header http.Header, body string) api.Problem {
	t.Helper()
	var p api.Problem
	if got := header.Get("Content-Type"); got != api.ProblemType {
		t.Errorf("Content-Type = %q, want %q; body %s", got, api.ProblemType, body)
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("not a problem: %v: %s", err, body)
	}
	return p
}

const base = "http://perdure/v1"

func TestSessionRoutes(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	status, _, body := request(t, c, "POST", base+"/sessions", `{"name":"invoices"}`)
	if status != 201 {
		t.Fatalf("create = %d %s", status, body)
	}
	for _, want := range []string{`"name":"invoices"`, `"status":"idle"`, `"stop_reason":""`, `"parent":null`, `"missing":[]`, `"idle_reasons":[]`, `"last_seq":1`, `"state":"running"`, `"driver":"process"`} {
		if !strings.Contains(body, want) {
			t.Errorf("a session has no %s: %s", want, body)
		}
	}
	for _, c2 := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/sessions/invoices", "", 200, `"name":"invoices"`},
		{"GET", "/sessions", "", 200, `"has_more":false`},
		{"GET", "/sessions?limit=1&after=nothing", "", 200, `"data":[`},
		{"POST", "/sessions/invoices:pause", "", 200, `"state":"paused"`},
		{"POST", "/sessions/invoices:resume", "", 200, `"state":"running"`},
		{"POST", "/sessions/invoices:suspend", "", 200, `"state":"suspended"`},

		{"POST", "/sessions/invoices:stop", "", 200, `"state":"stopped"`},
		{"POST", "/sessions/invoices:cancel", "", 200, `"status":"idle"`},
		{"POST", "/sessions/invoices:cancel", `{"reason":"x"}`, 200, `"status":"idle"`},
		{"POST", "/sessions/invoices:fork", "", 201, `"data":[{`},
		{"POST", "/sessions/invoices:rollback", `{"checkpoint":"x","dry_run":true}`, 200, `"dry_run":true`},
		{"POST", "/sessions/invoices:undo", "", 409, `nothing_to_undo`},
		{"POST", "/sessions/invoices:verify", "", 200, `"ok":true`},
		{"POST", "/sessions/invoices:wait", `{"for":["done"]}`, 200, `"name":"invoices"`},
		{"POST", "/sessions/invoices:wait", `{"for":["lost"],"timeout_ms":10}`, 504, `wait_timeout`},
		{"POST", "/sessions/invoices:fly", "", 404, `no_such_route`},
		{"POST", "/sessions/invoices/checkpoints", `{"message":"loaded"}`, 201, `"state":"warm"`},
		{"GET", "/sessions/invoices/checkpoints", "", 200, `"message":"loaded"`},
		{"GET", "/checkpoints/nonsense", "", 404, `checkpoint_not_found`},
		{"GET", "/sessions/invoices/timeline", "", 200, `"abandoned":[]`},
		{"GET", "/sessions/invoices/processes", "", 200, `"pid":7`},
		{"GET", "/diff?a=invoices&b=x", "", 200, `"a":"invoices"`},
		{"GET", "/diff?a=invoices", "", 400, `invalid_request`},
		{"GET", "/sessions?limit=5000", "", 400, `query.limit`},
		{"GET", "/sessions?limmit=5", "", 400, `invalid_request`},
		{"POST", "/sessions", `{"name":"invoices"}`, 409, `name_taken`},
		{"POST", "/sessions", `{"name":"In voices"}`, 400, `body.name`},
		{"POST", "/sessions", `{"nam":"x"}`, 400, `body.nam`},
		{"POST", "/sessions", `{`, 400, `invalid_request`},
		{"GET", "/sessions/nobody", "", 404, `session_not_found`},
		{"GET", "/health", "", 200, `"status":"ok"`},
		{"GET", "/doctor", "", 200, `"drivers":[]`},
		{"GET", "/version", "", 200, `"version":"test"`},
		{"GET", "/openapi.yaml", "", 200, `openapi: 3.1.0`},
		{"PATCH", "/sessions/invoices", `{"idle":{"suspend_after_ms":-1}}`, 200, `"suspend_after_ms":-1`},
		{"PATCH", "/sessions/invoices", `{"idle":{"suspend_after_ms":-2}}`, 400, `body.idle.suspend_after_ms`},
		{"DELETE", "/sessions/invoices", "", 204, ``},
		{"DELETE", "/sessions/invoices", "", 404, `session_not_found`},
		{"PUT", "/sessions/invoices", "", 404, `no_such_route`},
	} {
		status, header, body := request(t, c, c2.method, base+c2.path, c2.body)
		if status != c2.status || !strings.Contains(body, c2.want) {
			t.Errorf("%s %s %s = %d %s, want %d with %s", c2.method, c2.path, c2.body, status, body, c2.status, c2.want)
		}
		if status >= 400 {
			if p := problemIn(t, header, body); p.Code == "" || p.Status != status || p.Kind == "" {
				t.Errorf("%s %s: incomplete problem %+v", c2.method, c2.path, p)
			}
		}
	}
}

func TestRequestSizeIsLimited(t *testing.T) {
	d := servertest.NewDaemon(t)
	status, header, body := request(t, unixClient(d.Socket), "POST", base+"/sessions", `{"goal":"`+strings.Repeat("x", 2<<20)+`"}`)
	if p := problemIn(t, header, body); status != 413 && p.Code != "request_too_large" {
		t.Errorf("2 MiB = %d %s", status, p.Code)
	}
}

// readStream reads lines of an event stream until stop is satisfied.
func readStream(t *testing.T, c *http.Client, url string, stop func(lines []string) bool, header ...string) []string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("stream = %d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
	var lines []string
	s := bufio.NewScanner(res.Body)
	for s.Scan() {
		lines = append(lines, s.Text())
		if stop(lines) {
			return lines
		}
	}
	t.Fatalf("the stream ended: %q", lines)
	return nil
}

func TestE1_OnlyDurableEventsCarryAnID(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	request(t, c, "POST", base+"/sessions", `{"name":"s"}`)
	go func() {
		// The delta is for whoever follows: it is sent when a heartbeat shows that somebody does.
		d.Backend.Append("s", "model.requested", map[string]any{})
	}()
	sent := false
	lines := readStream(t, c, base+"/sessions/s/events/stream", func(lines []string) bool {
		text := strings.Join(lines, "\n")
		if !sent && strings.Contains(text, "id: 2") {
			sent = true
			if err := d.Backend.Delta("s", "hel"); err != nil {
				t.Error(err)
			}
			if _, err := d.Backend.Append("s", "message.agent", map[string]any{"text": "hello"}); err != nil {
				t.Error(err)
			}
		}
		return strings.Contains(text, "id: 3") && strings.Contains(text, ": beat") && strings.HasSuffix(text, "\n")
	})
	block, ids, deltas := []string{}, 0, 0
	for _, l := range append(lines, "") {
		if l != "" {
			block = append(block, l)
			continue
		}
		text := strings.Join(block, "\n")
		block = nil
		switch {
		case strings.Contains(text, "event: delta"):
			deltas++
			if strings.Contains(text, "id:") {
				t.Errorf("a delta carries an id: %q", text)
			}
		case strings.HasPrefix(text, "id: "):
			ids++
		case text != "" && !strings.HasPrefix(text, ":"):
			t.Errorf("neither an event, a delta nor a comment: %q", text)
		}
	}
	if ids != 3 || deltas != 1 {
		t.Errorf("%d events and %d deltas, want 3 and 1: %q", ids, deltas, lines)
	}
}

func TestStreamCursors(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	request(t, c, "POST", base+"/sessions", `{"name":"s","goal":"g"}`)
	first := func(lines []string) bool { return strings.HasPrefix(lines[len(lines)-1], "id: ") }
	for _, x := range []struct{ query, lastID, want string }{
		{"", "", "id: 1"}, {"?after=0", "", "id: 1"}, {"?after=1", "", "id: 2"}, {"", "1", "id: 2"}, {"?after=2", "1", "id: 2"},
	} {
		lines := readStream(t, c, base+"/sessions/s/events/stream"+x.query, first, "Last-Event-ID", x.lastID)
		if got := lines[len(lines)-1]; got != x.want {
			t.Errorf("after %q with Last-Event-ID %q starts with %q, want %q", x.query, x.lastID, got, x.want)
		}
	}
	for _, x := range []struct{ query, lastID string }{{"?after=3", ""}, {"", "99"}, {"", "abc"}, {"?after=-1", ""}, {"", "1.5"}} {
		status, header, body := request(t, c, "GET", base+"/sessions/s/events/stream"+x.query, "", "Last-Event-ID", x.lastID)
		if p := problemIn(t, header, body); status != 400 || p.Code != "unknown_cursor" {
			t.Errorf("cursor %q %q = %d %s, want 400 unknown_cursor", x.query, x.lastID, status, p.Code)
		}
	}
}

func TestArtifactRanges(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	name := d.Backend.PutArtifact([]byte("0123456789"))
	status, _, body := request(t, c, "GET", base+"/sessions/a/artifacts/"+string(name), "", "Range", "bytes=2-4")
	if status != 206 || body != "234" {
		t.Errorf("range = %d %q", status, body)
	}
	if status, _, _ := request(t, c, "GET", base+"/sessions/a/artifacts/art_no", ""); status != 404 {
		t.Errorf("unknown artifact = %d", status)
	}
}
