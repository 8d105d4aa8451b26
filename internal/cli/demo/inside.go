package demo

import (
	"context"
	"encoding/json"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// memory is what the persistent interpreter holds.
type memory struct {
	PID      int     `json:"pid"`
	Rows     int     `json:"rows"`
	Loads    int     `json:"loads"`     // how often the file was read
	LoadedAt float64 `json:"loaded_at"` // Unix time; 0: never
}

const ramCode = `
import json, os
print(json.dumps(dict(pid=os.getpid(), rows=len(globals().get("rows", [])), loads=globals().get("LOADS", 0), loaded_at=globals().get("loaded_at") or 0)))`

// ram asks the interpreter for what it holds.
func (s *story) ram(ctx context.Context, session string) (m memory, err error) {
	return m, s.python(ctx, session, ramCode, &m)
}

// answer is what the web server in a workspace says.
type answer struct {
	Rows    int     `json:"rows"`
	PID     int     `json:"pid"`
	Started float64 `json:"started"` // Unix time
	Served  int     `json:"served"`  // requests, counted in its RAM
}

// webCode asks the web server from inside, since nothing outside can reach it.
const webCode = `import urllib.request as u; print(u.urlopen("http://127.0.0.1:%s/" % open("server.port").read(), timeout=10).read().decode())`

// web asks the web server.
func (s *story) web(ctx context.Context, session string) (w answer, err error) {
	out, err := s.exec(ctx, session, api.StartExec{Argv: []string{"python3", "-c", webCode}})
	if err != nil {
		return w, err
	}
	return w, errdefs.Wrap(json.Unmarshal([]byte(out), &w), errdefs.Internal, "demo_bad_output", "reading %q", out)
}
