package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/examples/invoices"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
)

// name is the session's name.
const name = "invoices"

// story is one run of the demo.
type story struct {
	teller
	driver string
	keep   bool
	fig    Figures

	root    string // the temporary directory; "" before there is one
	daemon  *daemon
	c       *client.Client
	devices map[string]bool // before the start
	facts   invoices.Facts
	memory  bool   // checkpoints hold RAM
	home    string // of the workspace
	ready   memory // RAM at the checkpoint
}

// tell tells the whole story up to the cleaning.
func (s *story) tell(ctx context.Context) error {
	if !s.e.JSON {
		fmt.Fprintln(s.e.Out, "Perdure's demo: one session, whole. The model is a script (examples/invoices/agent.yaml) that always says the same;")
		fmt.Fprintln(s.e.Out, "the daemon, the sandboxes, the files, the processes and their RAM are real, and every ✓ was checked.")
	}
	for _, part := range []func(context.Context) error{s.begin, s.work, s.crash, s.sleep, s.followUp, s.checkpointAndFork, s.rollback, s.verify} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the daemon and the workspace.
func (s *story) begin(ctx context.Context) error {
	s.chapter("1. A daemon of its own, and a workspace")
	var err error
	s.devices = devices()
	if s.facts, err = invoices.Count(); err != nil {
		return err
	}
	s.fig.Rows = s.facts.Rows
	if s.root, err = tempDir(); err != nil {
		return err
	}
	if err := os.WriteFile(s.script(), []byte(invoices.Script()), 0o600); err != nil {
		return err
	}
	s.daemon = &daemon{dir: filepath.Join(s.root, "d")}
	if err := os.Mkdir(s.daemon.dir, 0o700); err != nil {
		return err
	}
	if s.c, err = client.New(client.Options{Socket: s.daemon.socket(), RetryFor: startLimit}); err != nil {
		return err
	}
	if err := s.timed("daemon started", func() (int64, error) { return 0, s.daemon.up(ctx) }); err != nil {
		return err
	}
	s.say("perdure serve is process %d, its data are in %s", s.daemon.pid(), s.daemon.dir)
	if err := s.choose(ctx); err != nil {
		return err
	}
	if err := s.timed("workspace created", func() (int64, error) { return 0, s.create(ctx) }); err != nil {
		return err
	}
	if s.home, err = s.exec(ctx, name, api.StartExec{Argv: []string{"bash", "-c", "echo $HOME"}}); err != nil {
		return err
	}
	return s.timed(invoices.DataName+" copied into it", func() (int64, error) {
		return int64(len(invoices.Data())), s.c.WriteFile(ctx, name, s.path(invoices.DataName), 0o644, strings.NewReader(invoices.Data()))
	})
}

func (s *story) script() string          { return filepath.Join(s.root, invoices.ScriptName) }
func (s *story) path(file string) string { return s.home + "/" + file }
func (s *story) setDriver(d api.DriverReport) {
	s.driver, s.memory = d.Name, d.Memory
	s.fig.Driver, s.fig.Isolation, s.fig.Missing = d.Name, d.Isolation, append([]string{}, d.Missing...)
}

// choose takes the driver that was asked for, or where it cannot run here the one without isolation, loudly.
func (s *story) choose(ctx context.Context) error {
	d, err := s.c.Doctor(ctx)
	if err != nil {
		return err
	}
	find := func(name string) api.DriverReport {
		i := slices.IndexFunc(d.Drivers, func(r api.DriverReport) bool { return r.Name == name })
		if i < 0 {
			return api.DriverReport{Name: name}
		}
		return d.Drivers[i]
	}
	r := find(s.driver)
	if !r.Available && s.driver == gvisor {
		s.fallBack(r.Missing)
		r = find(process)
	}
	if !r.Available {
		return errdefs.New(errdefs.Unavailable, "driver_unavailable", "the driver %s cannot run here: %s", r.Name, strings.Join(r.Missing, "; "))
	}
	s.setDriver(r)
	s.say("driver %s: isolation %s, RAM in checkpoints: %t", r.Name, r.Isolation, r.Memory)
	for _, m := range r.Missing {
		s.say("! without %s", m)
	}
	return nil
}

// fallBack says loudly that nothing isolates from here on.
func (s *story) fallBack(missing []string) {
	s.say("!! gVisor cannot run on this machine:")
	for _, m := range missing {
		s.say("!!   %s", m)
	}
	s.say("!! Going on with --driver process: NO ISOLATION (commands run with your own rights), and NO RAM in checkpoints.")
}

// create makes the session. Where the driver turns out not to work here, the other one is taken, as loudly.
func (s *story) create(ctx context.Context) error {
	req := api.CreateSession{Name: name, Model: "scripted:" + s.script(), Driver: s.driver}
	made, err := s.c.CreateSession(ctx, req)
	if errdefs.KindOf(err) == errdefs.Unavailable && s.driver == gvisor && ctx.Err() == nil {
		s.fallBack([]string{err.Error()})
		d, derr := s.c.Doctor(ctx)
		if derr != nil {
			return derr
		}
		for _, r := range d.Drivers {
			if r.Name == process {
				s.setDriver(r)
			}
		}
		req.Driver = process
		made, err = s.c.CreateSession(ctx, req)
	}
	if err != nil {
		return err
	}
	for _, m := range made.Workspace.Missing {
		if !slices.Contains(s.fig.Missing, m) {
			s.fig.Missing = append(s.fig.Missing, m)
			s.say("! without %s", m)
		}
	}
	return nil
}

// work has the agent load the file and serve it.
func (s *story) work(ctx context.Context) error {
	s.chapter("2. The agent loads %d rows into RAM and starts a web server", s.facts.Rows)
	if err := s.timed("first turn, 3 tool calls", func() (int64, error) {
		_, err := s.ask(ctx, name, "Load invoices.csv.gz into memory, and serve a summary of it over HTTP.", nil)
		return 0, err
	}); err != nil {
		return err
	}
	m, err := s.ram(ctx, name)
	if err != nil {
		return err
	}
	w, err := s.web(ctx, name)
	if err != nil {
		return err
	}
	s.ready = m
	if err := s.claim(m.Rows == s.facts.Rows && m.Loads == 1, fmt.Sprintf("the interpreter holds all %d rows, read once", s.facts.Rows), "%+v", m); err != nil {
		return err
	}
	return s.claim(w.Rows == s.facts.Rows && w.Served == 2, "a web server in the background answers", "%+v", w)
}

// verify checks the stored state of all sessions.
func (s *story) verify(ctx context.Context) error {
	s.chapter("8. Logs, manifests and stored content are checked")
	list, err := s.c.Sessions(ctx, api.Page{Limit: 100})
	if err != nil {
		return err
	}
	events, bytes := uint64(0), int64(0)
	from := time.Now()
	for _, x := range list.Data {
		v, err := s.c.VerifySession(ctx, x.ID)
		if err != nil {
			return err
		}
		if !v.OK {
			return errdefs.New(errdefs.Corrupt, "demo_verify", "%s does not verify: %+v", x.Name, v.Problems)
		}
		events += v.Events
		bytes += v.Bytes
	}
	s.fig.Steps = append(s.fig.Steps, Step{Name: "all sessions verified", MS: ms(time.Since(from)), Bytes: bytes})
	return s.claim(events > 0, fmt.Sprintf("%d events of %d sessions and %s of stored content verify", events, len(list.Data), env.Size(bytes)), "no events")
}
