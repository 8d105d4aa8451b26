// Package env is what every command of perdure runs in: its streams, its global flags, its connection to a daemon.
package env

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/errdefs"
)

// Env is the environment of one run of the command line. It is not for concurrent use, but for Interrupts.
type Env struct {
	In       io.Reader
	Out      io.Writer
	Err      io.Writer
	Getenv   func(string) string
	Terminal Terminal
	// Spawn starts a daemon for a data directory, with flags of serve, and returns when it answers. Nil: none is started.
	Spawn func(ctx context.Context, dataDir, socket string, flags ...string) error

	Interrupts Interrupts

	// The global flags.
	Data   string
	Socket string
	Host   string
	Token  string
	JSON   bool

	client *client.Client

	spawning sync.Mutex // one at a time
}

// DataDir is the data directory: --data, $PERDURE_DATA, or the user's default.
func (e *Env) DataDir() (string, error) {
	dir := e.Data
	if dir == "" {
		dir = e.Getenv("PERDURE_DATA")
	}
	if dir == "" {
		switch {
		case os.Geteuid() == 0:
			dir = "/var/lib/perdure"
		case e.Getenv("XDG_DATA_HOME") != "":
			dir = filepath.Join(e.Getenv("XDG_DATA_HOME"), "perdure")
		case e.Getenv("HOME") != "":
			dir = filepath.Join(e.Getenv("HOME"), ".local/share/perdure")
		default:
			return "", errdefs.New(errdefs.Invalid, "no_data_dir", "there is no data directory: HOME is not set").WithHint("Use --data DIR or PERDURE_DATA.")
		}
	}
	abs, err := filepath.Abs(dir)
	return abs, errdefs.Wrap(err, errdefs.Invalid, "no_data_dir", "finding the data directory")
}

// reachFor is how long a daemon may take to answer for the first time. One that is to be there but is not is told of at once.
const reachFor = 300 * time.Millisecond

// Client returns the connection to the daemon. Unless --host names one elsewhere, it starts one that does not run.
func (e *Env) Client(ctx context.Context) (*client.Client, error) {
	if e.client != nil {
		return e.client, nil
	}
	host := e.Host
	if host == "" && e.Socket == "" && e.Data == "" {
		host = e.Getenv("PERDURE_HOST")
	}
	token := e.Token
	if token == "" {
		token = e.Getenv("PERDURE_TOKEN")
	}
	var err error
	if host != "" {
		e.client, err = client.New(client.Options{Addr: host, Token: token, ReachFor: reachFor, Waiting: e.waiting})
		return e.client, err
	}
	dir, err := e.DataDir()
	if err != nil {
		return nil, err
	}
	socket := e.Socket
	if socket == "" {
		socket = filepath.Join(dir, api.SocketName)
	}
	o := client.Options{Socket: socket, Waiting: e.waiting}
	switch {
	case e.Socket != "":
		o.ReachFor = reachFor
	case e.Spawn != nil:
		if err := e.start(ctx, dir, socket); err != nil {
			return nil, err
		}
		o.Revive = func(ctx context.Context) error { return e.revive(ctx, dir, socket) }
	}
	e.client, err = client.New(o)
	return e.client, err
}

// Print writes v as JSON with --json, and otherwise what text writes.
func (e *Env) Print(v any, text func(w io.Writer)) error {
	if e.JSON {
		return e.PrintJSON(v)
	}
	text(e.Out)
	return nil
}

// PrintJSON writes one of the API's objects.
func (e *Env) PrintJSON(v any) error {
	enc := json.NewEncoder(e.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// PrintLine writes one of the API's objects on one line, for streams of them.
func (e *Env) PrintLine(v any) error {
	enc := json.NewEncoder(e.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Note tells people something that is no result.
func (e *Env) Note(format string, args ...any) {
	fmt.Fprintf(e.Err, format+"\n", args...)
}
