package server_test

import (
	"errors"
	"net/http"
	"runtime"
	"testing"

	"perdure.dev/perdure/internal/server/servertest"
)

func TestIdempotencyReplaysTheStoredAnswer(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	_, _, first := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k1")
	d.Kill()
	d.Start(t)
	status, header, again := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k1")
	if status != 201 || again != first || header.Get("Idempotency-Replayed") != "true" || header.Get("Content-Type") != "application/json" {
		t.Errorf("repeat = %d %v %s, want the first answer %s", status, header, again, first)
	}
	if n, who := d.Backend.Created(); n != 1 || len(who[0].Request) != 64 {
		t.Errorf("%d sessions were made, by %+v", n, who)
	}
	// A refusal is an answer too.
	_, _, _ = request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k2")
	if status, header, _ := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k2"); status != 409 || header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeated refusal = %d", status)
	}
}

func TestIdempotencyMismatch(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k")
	for _, x := range []struct{ path, body string }{{"/sessions", `{"name":"b"}`}, {"/sessions/a:pause", ""}} {
		status, header, body := request(t, c, "POST", base+x.path, x.body, "Idempotency-Key", "k")
		if p := problemIn(t, header, body); status != 422 || p.Code != "idempotency_mismatch" || p.Status != 422 {
			t.Errorf("POST %s %s = %d %s", x.path, x.body, status, p.Code)
		}
	}
}

func TestIdempotencyInFlight(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	release := d.Backend.Block()
	done := make(chan int)
	go func() {
		status, _, _ := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k")
		done <- status
	}()
	awaitCreate(d.Backend)
	status, header, body := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k")
	if p := problemIn(t, header, body); status != 409 || p.Code != "idempotency_in_flight" || header.Get("Retry-After") == "" {
		t.Errorf("second = %d %s", status, p.Code)
	}
	release()
	if status := <-done; status != 201 {
		t.Errorf("first = %d", status)
	}
}

func TestIdempotencyForgetsFailures(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := unixClient(d.Socket)
	d.Backend.FailCreate(errors.New("disk on fire"))
	if status, _, _ := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k"); status != 500 {
		t.Errorf("failure = %d", status)
	}
	d.Backend.FailCreate(nil)
	if status, _, body := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k"); status != 201 {
		t.Errorf("repeat after a failure = %d %s", status, body)
	}
}

func TestAWorkThatItsClientLeftGoesOn(t *testing.T) {
	d := servertest.NewDaemon(t)
	release := d.Backend.Block()
	status := make(chan int)
	go func() {
		c := unixClient(d.Socket)
		code := 0
		defer func() { status <- code }()
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/sessions", bodyOf(`{"name":"left"}`))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if res, err := c.Do(req); err == nil {
			code = res.StatusCode
			res.Body.Close()
		}
	}()
	awaitCreate(d.Backend)
	d.Cut()
	if code := <-status; code != 0 {
		t.Fatalf("the cut connection answered %d", code)
	}
	release()
	for {
		if code, _, _ := request(t, unixClient(d.Socket), "GET", base+"/sessions/left", ""); code == 200 {
			return
		}
	}
}

// awaitCreate returns when CreateSession was called, which the backend notes before it blocks.
func awaitCreate(b *servertest.Backend) {
	for {
		if _, who := b.Created(); len(who) > 0 {
			return
		}
		runtime.Gosched()
	}
}

func TestAClaimOfADeadDaemonIsTakenOver(t *testing.T) {
	d := servertest.NewDaemon(t)
	keys := servertest.NewKeys()
	keys.Strand()
	d.Kill()
	d.Config.Idempotency = keys
	d.Start(t)
	c := unixClient(d.Socket)
	_, _, first := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k")
	status, header, again := request(t, c, "POST", base+"/sessions", `{"name":"a"}`, "Idempotency-Key", "k")
	if status != 201 || again != first || header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeat = %d %s, want the first answer %s", status, again, first)
	}
	// A signal that was sent cannot be told from one that was not.
	status, header, body := request(t, c, "POST", base+"/sessions/a/execs/x:signal", `{"signal":"TERM"}`, "Idempotency-Key", "s")
	if p := problemIn(t, header, body); status != 409 || p.Code != "idempotency_unknown" {
		t.Errorf("signal = %d %s", status, p.Code)
	}
}
