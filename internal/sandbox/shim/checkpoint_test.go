package shim

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener with one connection.
type oneConn struct {
	conn chan net.Conn
	done chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l oneConn) Close() error   { close(l.done); return nil }
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// TestS4_SilentCallerDoesNotKeepTheSandboxPaused holds the dialogue of a checkpoint with a caller that stops in its middle.
func TestS4_SilentCallerDoesNotKeepTheSandboxPaused(t *testing.T) {
	for name, c := range map[string]struct {
		signs bool
		talk  func(lines *json.Encoder, stop <-chan struct{})
		want  string // the error
		after time.Duration
	}{
		"stopped":                        {signs: true, talk: func(*json.Encoder, <-chan struct{}) {}, want: "the caller stands still", after: silenceLimit},
		"of a build that gives no signs": {talk: func(*json.Encoder, <-chan struct{}) {}, want: "the caller stands still", after: stillnessLimit},
		"slow but at work": {signs: true, after: 5 * time.Minute, talk: func(lines *json.Encoder, _ <-chan struct{}) {
			quiet := giveSigns(lines)
			time.Sleep(5 * time.Minute) // of the clock of synctest, which costs no time
			quiet()
			_ = lines.Encode(checkpointLine{CutOK: true})
		}},
		"at work for ever": {signs: true, want: "the caller stands still", after: stillnessLimit, talk: func(lines *json.Encoder, stop <-chan struct{}) {
			quiet := giveSigns(lines)
			<-stop
			quiet()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				heard := make(chan error, 1)
				began := time.Now()
				var took time.Duration
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					rc := http.NewResponseController(w)
					if err := rc.EnableFullDuplex(); err != nil {
						t.Error(err)
					}
					ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), stillnessLimit)
					defer cancel()
					_, err := hear(ctx, rc, json.NewDecoder(r.Body), c.signs)
					took = time.Since(began)
					heard <- err
				})}
				lis := oneConn{make(chan net.Conn, 1), make(chan struct{})}
				lis.conn <- far
				go func() { _ = srv.Serve(lis) }()
				body, tell := io.Pipe()
				stop := make(chan struct{})
				go c.talk(json.NewEncoder(tell), stop)
				client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}}
				go func() {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shim/", body)
					if err != nil {
						t.Error(err)
						return
					}
					if resp, err := client.Do(req); err == nil {
						resp.Body.Close()
					}
				}()
				err := <-heard
				if got := ""; err != nil {
					if got = err.Error(); got != c.want {
						t.Errorf("heard %v, want %q", err, c.want)
					}
				} else if c.want != "" {
					t.Errorf("heard the caller out")
				}
				if took < c.after || took > c.after+silenceLimit {
					t.Errorf("after %v, want %v", took, c.after)
				}
				close(stop)
				body.Close()
				tell.Close()
				near.Close()
				srv.Close()
				client.CloseIdleConnections()
			})
		})
	}
}
