package server_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/server/servertest"
)

func TestExecRoutes(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	request(t, c, "POST", base+"/sessions", `{"name":"s"}`)
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/execs", `{"id":"a","argv":["sh","-c","echo out; echo err >&2; exit 3"],"output":true}`, 200, `"exit_code":3`},
		{"POST", "/execs", `{"id":"a","argv":["true"],"output":true}`, 200, `"stdout":"out\n","stderr":"err\n"`},
		{"POST", "/execs", `{"argv":["sh","-c","printf '\\377x'"],"output":true}`, 200, `"stdout":"�x"`},
		{"POST", "/execs", `{"argv":["sh","-c","printf 123456"],"output":true,"max_output":2}`, 200, `"stdout":"12"`},
		{"POST", "/execs", `{"argv":["sleep","60"],"timeout_ms":50,"wait":true}`, 200, `"timed_out":true`},
		{"POST", "/execs", `{"argv":["sh","-c","kill -9 $$"],"wait":true}`, 200, `"exit_code":null,"signal":"SIGKILL"`},
		{"POST", "/execs", `{"argv":["no-such-program"]}`, 404, `command_not_found`},
		{"POST", "/execs", `{"id":"../x","argv":["true"]}`, 400, `body.id`},
		{"GET", "/execs/a", "", 200, `"state":"exited"`},
		{"GET", "/execs/a?wait=true", "", 200, `"state":"exited"`},
		{"GET", "/execs", "", 200, `"id":"a"`},
		{"GET", "/execs/nope", "", 404, `exec_not_found`},
		{"GET", "/execs/a/output/stdout?offset=1", "", 200, "ut\n"},
		{"GET", "/execs/a/output/stderr?follow=true", "", 200, "err\n"},
		{"GET", "/execs/a/output/stdin", "", 400, `invalid_request`},
		{"POST", "/execs", `{"id":"sleep","argv":["sleep","60"]}`, 200, `"state":"running"`},
		{"POST", "/execs/sleep:signal", `{"signal":"sigterm"}`, 204, ``},
		{"GET", "/execs/sleep?wait=true", "", 200, `"signal":"SIGTERM"`},
		{"POST", "/execs/sleep:signal", `{"signal":"BOGUS"}`, 400, `unknown_signal`},
		{"POST", "/execs/sleep:resize", `{"rows":1,"cols":1}`, 409, `no_terminal`},
		{"POST", "/execs", `{"id":"cat","argv":["cat"],"stdin":true}`, 200, ``},
	} {
		status, _, body := request(t, c, x.method, base+"/sessions/s"+x.path, x.body)
		if status != x.status || !strings.Contains(body, x.want) {
			t.Errorf("%s %s %s = %d %s, want %d with %s", x.method, x.path, x.body, status, body, x.status, x.want)
		}
	}
	put := func(query, body string) {
		t.Helper()
		if status, _, answer := request(t, c, "PUT", base+"/sessions/s/execs/cat/stdin"+query, body, "Content-Type", "application/octet-stream"); status != 204 {
			t.Errorf("stdin%s = %d %s", query, status, answer)
		}
	}
	put("?offset=0", "hello ")
	put("?offset=0", "hello ") // a repeat
	put("?offset=4&eof=true", "o world")
	if _, _, body := request(t, c, "GET", base+"/sessions/s/execs/cat/output/stdout?follow=true", ""); body != "hello world" {
		t.Errorf("cat wrote %q", body)
	}
}

func TestFileRoutes(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	request(t, c, "POST", base+"/sessions", `{"name":"s"}`)
	octets := []string{"Content-Type", "application/octet-stream"}
	big := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB: more than a JSON request may have
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/files/content?path=/root/a.txt&mode=0600", "hello", 204, ``},
		{"PUT", "/files/content?path=/root/big", big, 204, ``},
		{"GET", "/files/content?path=/root/big", "", 200, big},
		{"GET", "/files?path=/root/a.txt", "", 200, `"mode":"0600"`},
		{"GET", "/files?path=/root/../root/./a.txt", "", 200, `"size":5`},
		{"GET", "/files/content?path=/root/a.txt&offset=1&length=3", "", 200, `ell`},
		{"GET", "/files/list?path=/root", "", 200, `"name":"a.txt"`},
		{"GET", "/files/content?path=/root/none", "", 404, `file_not_found`},
		{"GET", "/files?path=root", "", 400, `bad_path`},
		{"GET", "/files", "", 400, `query.path`},
		{"PUT", "/files/content?path=/x&mode=999", "", 400, `query.mode`},
		{"PUT", "/files/directory?path=/root/dir/sub", "", 204, ``},
		{"DELETE", "/files?path=/root/a.txt", "", 204, ``},
		{"DELETE", "/files?path=/root/a.txt", "", 204, ``},
		{"GET", "/files?path=/root/a.txt", "", 404, `file_not_found`},
	} {
		status, _, body := request(t, c, x.method, base+"/sessions/s"+x.path, x.body, octets...)
		if status != x.status || !strings.Contains(body, x.want) {
			t.Errorf("%s %s = %d %.200s, want %d with %.100s", x.method, x.path, status, body, x.status, x.want)
		}
	}
}

func archive(t *testing.T, headers ...tar.Header) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body = "body of " + h.Name
			h.Size = int64(len(body))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestTarRoundTrip(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	request(t, c, "POST", base+"/sessions", `{"name":"s"}`)
	tarball := archive(t, tar.Header{Name: "tree/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "tree/a", Typeflag: tar.TypeReg},
		tar.Header{Name: "tree/sub/b", Typeflag: tar.TypeReg, Mode: 0o755})
	if status, _, body := request(t, c, "PUT", base+"/sessions/s/files/tar?path=/root", tarball, "Content-Type", "application/x-tar"); status != 204 {
		t.Fatalf("write = %d %s", status, body)
	}
	if err := os.Symlink("a", filepath.Join(d.Backend.Root, "root/tree/link")); err != nil {
		t.Fatal(err)
	}
	status, _, body := request(t, c, "GET", base+"/sessions/s/files/tar?path=/root/tree", "")
	if status != 200 {
		t.Fatalf("read = %d %s", status, body)
	}
	got := map[string]string{}
	tr := tar.NewReader(strings.NewReader(body))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(data) + h.Linkname
	}
	want := map[string]string{"tree/": "", "tree/a": "body of tree/a", "tree/sub/": "", "tree/sub/b": "body of tree/sub/b", "tree/link": "a"}
	for name, content := range want {
		if g, ok := got[name]; !ok || g != content {
			t.Errorf("%s = %q, %v; want %q", name, g, ok, content)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the archive holds %v", got)
	}
}

func TestK10_ArchivesAreHostile(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	request(t, c, "POST", base+"/sessions", `{"name":"s"}`)
	for _, h := range []tar.Header{
		{Name: "../x", Typeflag: tar.TypeReg}, {Name: "/etc/x", Typeflag: tar.TypeReg}, {Name: "a/../../x", Typeflag: tar.TypeReg},
		{Name: "dev", Typeflag: tar.TypeBlock}, {Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
	} {
		status, header, body := request(t, c, "PUT", base+"/sessions/s/files/tar?path=/root/in", archive(t, h), "Content-Type", "application/x-tar")
		if p := problemIn(t, header, body); status != 400 || p.Code != "bad_archive" {
			t.Errorf("%s = %d %s", h.Name, status, p.Code)
		}
	}
	if status, _, _ := request(t, c, "PUT", base+"/sessions/s/files/tar?path=/root/in", "no tar at all, but long enough to be a block", "Content-Type", "application/x-tar"); status != 400 {
		t.Errorf("garbage = %d", status)
	}
	entries, _ := filepath.Glob(filepath.Join(d.Backend.Root, "*"))
	for _, e := range entries {
		if filepath.Base(e) != "root" {
			t.Errorf("the archive wrote %s", e)
		}
	}
}
