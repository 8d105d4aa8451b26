package server_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server"
	"perdure.dev/perdure/internal/server/servertest"
)

func bodyOf(s string) io.Reader { return strings.NewReader(s) }

const secret = "0123456789abcdefghij-"

// tcp starts a daemon on TCP with one token per role and returns its URL.
func tcp(t *testing.T) string {
	t.Helper()
	d := servertest.NewDaemon(t)
	d.Kill()
	d.Config.Hosts = []string{"perdure.example"}
	for _, r := range []actor.Role{actor.Viewer, actor.Approver, actor.Operator, actor.Admin} {
		d.Config.Tokens = append(d.Config.Tokens, server.Token{Name: "t", Role: r, Secret: secret + string(r)})
	}
	d.Start(t)
	l, err := d.Server().ListenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := d.Server()
	go func() { _ = s.Serve(l) }() // ends with the daemon
	return "http://" + l.Addr().String() + "/v1"
}

func TestTCPNeedsAToken(t *testing.T) {
	d := servertest.NewDaemon(t)
	_, err := d.Server().ListenTCP(t.Context(), "127.0.0.1:0")
	if errdefs.CodeOf(err) != "token_required" || errdefs.HintOf(err) == "" {
		t.Errorf("ListenTCP without tokens = %v", err)
	}
	url := tcp(t)
	for _, auth := range []string{"", "Bearer ", "Bearer x", "Bearer " + secret, secret + "admin", "Basic " + secret + "admin"} {
		status, header, body := request(t, http.DefaultClient, "GET", url+"/sessions", "", "Authorization", auth)
		if p := problemIn(t, header, body); status != 403 || p.Code != "unauthenticated" || header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("Authorization %q = %d %s", auth, status, p.Code)
		}
	}
	if status, _, body := request(t, http.DefaultClient, "GET", url+"/sessions", "", "Authorization", "Bearer "+secret+"viewer"); status != 200 {
		t.Errorf("with a token = %d %s", status, body)
	}
}

func TestRoles(t *testing.T) {
	url := tcp(t)
	for _, x := range []struct {
		role         actor.Role
		method, path string
		body         string
		want         int
	}{
		{actor.Viewer, "GET", "/sessions", "", 200},
		{actor.Viewer, "POST", "/sessions", `{"name":"v"}`, 403},
		{actor.Approver, "POST", "/sessions", `{"name":"v"}`, 403},
		{actor.Operator, "POST", "/sessions", `{"name":"v"}`, 201},
		{actor.Viewer, "GET", "/sessions/v", "", 200},
		{actor.Viewer, "DELETE", "/sessions/v", "", 403},
		{actor.Viewer, "POST", "/sessions/v:suspend", "", 403},
		{actor.Viewer, "POST", "/sessions/v/execs", `{"argv":["true"]}`, 403},
		{actor.Viewer, "GET", "/sessions/v/execs/x/attach", "", 403},
		{actor.Viewer, "POST", "/sessions/v:wait", `{"for":["done"]}`, 200},
		{actor.Admin, "DELETE", "/sessions/v", "", 204},
	} {
		status, header, body := request(t, http.DefaultClient, x.method, url+x.path, x.body, "Authorization", "Bearer "+secret+string(x.role))
		if status != x.want {
			t.Errorf("%s: %s %s = %d %s, want %d", x.role, x.method, x.path, status, body, x.want)
		}
		if status == 403 {
			if p := problemIn(t, header, body); p.Code != "role_denied" {
				t.Errorf("%s: %s %s: code %s", x.role, x.method, x.path, p.Code)
			}
		}
	}
}

// A key of one actor must not give another the stored answer.
func TestIdempotencyKeysAreCheckedAfterTheRole(t *testing.T) {
	url := tcp(t)
	key := []string{"Idempotency-Key", "k", "Authorization", ""}
	key[3] = "Bearer " + secret + "operator"
	request(t, http.DefaultClient, "POST", url+"/sessions", `{"name":"v"}`, key...)
	key[3] = "Bearer " + secret + "viewer"
	if status, _, body := request(t, http.DefaultClient, "POST", url+"/sessions", `{"name":"v"}`, key...); status != 403 {
		t.Errorf("a viewer got %d %s", status, body)
	}
}

func TestHostIsChecked(t *testing.T) {
	url := tcp(t)
	for host, want := range map[string]int{
		"127.0.0.1:7": 200, "localhost": 200, "LOCALHOST:80": 200, "[::1]:80": 200, "perdure.example": 200, "Perdure.Example:443": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "perdure.example.": 403,
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Authorization", "Bearer "+secret+"admin")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || want == 403 && !strings.Contains(string(body), "host_denied") {
			t.Errorf("Host %q = %d %s, want %d", host, res.StatusCode, body, want)
		}
	}
}

func TestLoadTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if got, err := server.LoadTokens(path); got != nil || err != nil {
		t.Errorf("missing file = %v, %v", got, err)
	}
	write := func(s string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("# people\n\nme admin "+secret+"\n", 0o600)
	if got, err := server.LoadTokens(path); err != nil || len(got) != 1 || got[0].Role != actor.Admin {
		t.Errorf("LoadTokens = %v, %v", got, err)
	}
	write("me admin "+secret, 0o640)
	if _, err := server.LoadTokens(path); errdefs.CodeOf(err) != "tokens_exposed" {
		t.Errorf("exposed file: %v", err)
	}
	for _, bad := range []string{"me admin", "me root " + secret, "me admin short", "me admin " + secret + " more"} {
		write(bad, 0o600)
		if _, err := server.LoadTokens(path); errdefs.CodeOf(err) != "bad_token" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	d := servertest.NewDaemon(t)
	info, err := os.Stat(d.Socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode = %v, %v", info.Mode(), err)
	}
	if _, err := server.ListenUnix(t.Context(), d.Socket); errdefs.CodeOf(err) != "daemon_running" {
		t.Errorf("a second daemon: %v", err)
	}
	if _, err := server.ListenUnix(t.Context(), "/tmp/"+strings.Repeat("x", 120)); errdefs.CodeOf(err) != "socket_path_too_long" {
		t.Errorf("a long path: %v", err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := server.ListenUnix(t.Context(), path)
	if err != nil || l.Addr().Network() != "unix" || l.Addr().String() != path {
		t.Errorf("listening on %s = %v, %v", path, l.Addr(), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	d.Stop(t)
	if _, err := os.Stat(d.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	// A socket that a killed daemon left is replaced.
	if err := os.WriteFile(d.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start(t)
	if status, _, _ := request(t, unixClient(d.Socket), "GET", base+"/health", ""); status != 200 {
		t.Errorf("health = %d", status)
	}
}
