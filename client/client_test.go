package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server/servertest"
)

func connect(t *testing.T, d *servertest.Daemon) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func session(t *testing.T, c *client.Client, name string) api.Session {
	t.Helper()
	s, err := c.CreateSession(t.Context(), api.CreateSession{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestErrorsKeepKindCodeAndHint(t *testing.T) {
	c := connect(t, servertest.NewDaemon(t))
	_, err := c.Session(t.Context(), "nobody")
	if errdefs.KindOf(err) != errdefs.NotFound || errdefs.CodeOf(err) != "session_not_found" || errdefs.HintOf(err) == "" {
		t.Errorf("Session = %v (%s, %s)", err, errdefs.KindOf(err), errdefs.CodeOf(err))
	}
	var e *client.Error // the name that others have for it
	if !errors.As(err, &e) || e.Kind != client.NotFound {
		t.Errorf("Session = %#v", err)
	}
	_, err = c.CreateSession(t.Context(), api.CreateSession{Name: "NO"})
	if errdefs.KindOf(err) != errdefs.Invalid || !strings.Contains(err.Error(), "body.name") {
		t.Errorf("CreateSession = %v", err)
	}
	for _, name := range []string{"a/b", "a:pause", "..", "%2e", "?", "é", ""} {
		if _, err := c.Session(t.Context(), name); err == nil && name != "" {
			t.Errorf("Session(%q) found something", name)
		}
	}
}

func TestUnreachableDaemon(t *testing.T) {
	c, err := client.New(client.Options{Socket: t.TempDir() + "/none", RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Health(t.Context())
	if errdefs.CodeOf(err) != "daemon_unreachable" || errdefs.KindOf(err) != errdefs.Unavailable {
		t.Errorf("Health = %v", err)
	}
	for _, o := range []client.Options{{}, {Addr: "ftp://x"}, {Addr: "http://"}} {
		if _, err := client.New(o); errdefs.CodeOf(err) != "bad_address" {
			t.Errorf("New(%+v) = %v", o, err)
		}
	}
}

// A daemon that never answered is given up soon; one that has answered is given the time to come back.
func TestUnreachableDaemonIsToldOfSoon(t *testing.T) {
	for _, o := range []client.Options{{Socket: t.TempDir() + "/none"}, {Addr: "127.0.0.1:1"}} {
		o.RetryFor, o.ReachFor = time.Hour, time.Millisecond
		c, err := client.New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = c.Health(ctx)
		if errdefs.CodeOf(err) != "daemon_unreachable" || !strings.Contains(errdefs.HintOf(err), "perdure serve") {
			t.Errorf("%s: %v, hint %q", c.Where(), err, errdefs.HintOf(err))
		}
	}
	d := servertest.NewDaemon(t)
	c, err := client.New(client.Options{Socket: d.Socket, ReachFor: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	session(t, c, "s")
	d.Kill()
	done := make(chan error, 1)
	go func() {
		_, err := c.Session(t.Context(), "s")
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it was given up: %v", err)
	case <-time.After(50 * time.Millisecond): // many times ReachFor
	}
	d.Start(t)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestN1_FirstRequestAfterARestartSucceeds(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	for range 5 {
		d.Kill()
		d.Start(t)
		if _, err := c.PauseSession(t.Context(), "s"); err != nil {
			t.Fatalf("first POST after a restart: %v", err)
		}
		d.Stop(t)
		d.Start(t)
		if _, err := c.Session(t.Context(), "s"); err != nil {
			t.Fatalf("first GET after a restart: %v", err)
		}
		d.Cut()
		if err := c.WriteFile(t.Context(), "s", "/root/f", 0, strings.NewReader("x")); err != nil {
			t.Fatalf("first upload after a restart: %v", err)
		}
	}
}

// A request whose connection breaks while it works is repeated with its key, and happens once.
func TestAPostHappensOnceAcrossBrokenConnections(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	release := d.Backend.Block()
	done := make(chan error, 1)
	go func() {
		_, err := c.CreateSession(t.Context(), api.CreateSession{Name: "once"})
		done <- err
	}()
	for n := 0; n < 3; {
		if _, who := d.Backend.Created(); len(who) > 0 {
			d.Cut()
			n++
		}
		time.Sleep(time.Millisecond) // lets the client come back; the outcome does not depend on it
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n, who := d.Backend.Created(); n != 1 || len(who) != 1 {
		t.Errorf("made %d sessions in %d calls", n, len(who))
	}
}

func TestWaitSession(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	start := time.Now()
	_, err := c.WaitSession(t.Context(), "s", []string{"finished"}, 50*time.Millisecond)
	if errdefs.KindOf(err) != errdefs.Timeout || time.Since(start) > 5*time.Second {
		t.Errorf("WaitSession = %v after %s", err, time.Since(start))
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.WaitSession(t.Context(), "s", []string{"finished"}, 0)
		done <- err
	}()
	d.Stop(t)
	d.Start(t)
	if err := d.Backend.Finish("s", "finished", "finished"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("WaitSession across a restart: %v", err)
	}
}

func TestGivingUpSaysWhy(t *testing.T) {
	c := connect(t, servertest.NewDaemon(t))
	session(t, c, "s")
	cause := errdefs.New(errdefs.Timeout, "lunch", "it is noon")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := c.WaitSession(ctx, "s", []string{"finished"}, 0); !errors.Is(err, cause) {
		t.Errorf("WaitSession = %v, want %v", err, cause)
	}
}
