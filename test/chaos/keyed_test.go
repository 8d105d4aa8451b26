package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
)

// post makes a request with an idempotency key, once, and decodes the answer.
func (w *world) post(ctx context.Context, path, key string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", w.socket())
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://perdure/v1"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", resp.Status, b)
	}
	return json.Unmarshal(b, answer)
}

// keyed is a request with a key that its client makes again, with the same key, after the daemon has died. What it does happens once.
func keyed(path, effect string, body func(n, round int) any, has func(w *world, n, round int)) op {
	n, round := 0, 0
	key := func() string { return fmt.Sprintf("%s-%d", path, round) }
	return op{
		ref: one,
		prepare: func(w *world) {
			round++
			w.forgetCheckpoints(one)
			n = w.awake(one)
			must[api.Checkpoint](w, "checkpoint")(w.c.CreateCheckpoint(w.ctx(), one, api.CreateCheckpoint{Message: fmt.Sprintf("m%d", n)}))
			w.set(one)
		},
		run: func(ctx context.Context, w *world, _ *client.Client) error {
			var answer json.RawMessage
			return w.post(ctx, path, key(), body(n, round), &answer)
		},
		check: func(w *world, _ bool) {
			var first, again json.RawMessage
			for _, answer := range []*json.RawMessage{&first, &again} {
				if err := w.post(w.ctx(), path, key(), body(n, round), answer); err != nil {
					w.t.Errorf("H4: asked again: %v", err)
				}
			}
			if !bytes.Equal(first, again) {
				w.t.Errorf("H4: two answers: %s and %s", first, again)
			}
			told := 0
			for _, e := range w.events(one) {
				if e.Type == effect && e.Seq > w.mark && (effect != "checkpoint.created" || bytes.Contains(e.Data, []byte(fmt.Sprintf("keyed %d", round)))) {
					told++
				}
			}
			if told != 1 {
				w.t.Errorf("H4: the log has %s %d times", effect, told)
			}
			has(w, n, round)
		},
	}
}

// TestH4_KeyedRequestsRepeatedAfterTheDaemonsDeath walks through requests that have no id but their key.
func TestH4_KeyedRequestsRepeatedAfterTheDaemonsDeath(t *testing.T) {
	w := newWorld(t)
	w.create(one)
	met := map[string]bool{}
	walk(w, met, "keyed checkpoint", keyed("/sessions/one/checkpoints", "checkpoint.created",
		func(_, round int) any { return api.CreateCheckpoint{Message: fmt.Sprintf("keyed %d", round)} },
		func(w *world, _, round int) {
			if !w.message(one, fmt.Sprintf("keyed %d", round)) {
				w.t.Errorf("there is no checkpoint of round %d", round)
			}
		}))
	walk(w, met, "keyed rollback", keyed("/sessions/one:rollback", "session.rolled_back",
		func(n, _ int) any { return api.RollbackSession{Checkpoint: fmt.Sprintf("m%d", n)} },
		func(w *world, n, _ int) { w.has(one, n) }))
	walk(w, met, "keyed fork", keyed("/sessions/one:fork", "session.forked",
		func(n, round int) any {
			return api.ForkSession{Checkpoint: fmt.Sprintf("m%d", n), Count: 2, Name: fmt.Sprintf("key%d", round)}
		},
		func(w *world, n, round int) {
			for i := range 2 {
				child := fmt.Sprintf("key%d-%d", round, i+1)
				w.has(child, n)
				if err := w.c.DeleteSession(w.ctx(), child); err != nil {
					w.t.Errorf("rm %s: %v", child, err)
				}
			}
		}))
}
