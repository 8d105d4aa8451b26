package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store"
)

// Health says that the daemon answers.
func (s *Service) Health(ctx context.Context) (api.Health, error) {
	n := 0
	f := store.Filter{}
	for {
		rows, more, err := s.cfg.Rows.Sessions(ctx, f)
		if err != nil {
			return api.Health{}, err
		}
		n += len(rows)
		if !more {
			break
		}
		f.After = rows[len(rows)-1].ID
	}
	h := api.Health{
		Status: "ok", Version: s.cfg.Build.Version, PID: os.Getpid(), DataDir: s.cfg.Dirs.Root, Sessions: n,
		UptimeMS: s.cfg.Clock.Now().Sub(s.started).Milliseconds(),
	}
	if s.run.Err() != nil {
		h.Status = "stopping"
	}
	return h, nil
}

// Version is that of the build.
func (s *Service) Version() api.BuildInfo { return s.cfg.Build }

// lowSpace is how little free space a data directory may have before doctor warns, in bytes.
const lowSpace = 2 << 30

// Doctor says what this machine can do, and what is missing.
func (s *Service) Doctor(ctx context.Context) (api.DoctorReport, error) {
	out := api.DoctorReport{OK: true, Checks: []api.DoctorCheck{}, Drivers: []api.DriverReport{}}
	add := func(c api.DoctorCheck) {
		out.OK = out.OK && c.Status != "fail"
		out.Checks = append(out.Checks, c)
	}
	add(s.checkDisk())
	add(s.checkJournals())
	names := make([]string, 0, len(s.cfg.Drivers))
	for name := range s.cfg.Drivers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := s.cfg.Drivers[name].Capabilities(ctx)
		out.Drivers = append(out.Drivers, api.DriverReport{
			Name: name, Available: c.Available, Memory: c.Memory, Network: c.Network, Isolation: c.Isolation, Version: c.Version,
			Missing: append([]string{}, c.Missing...),
		})
		check := api.DoctorCheck{Name: "driver " + name, Status: "ok", Detail: "can run sandboxes; isolation: " + c.Isolation}
		switch {
		case !c.Available && name == s.cfg.DefaultDriver:
			check.Status, check.Detail = "fail", joinMissing(c.Missing)
			check.Hint = "use --driver process, which isolates nothing"
			if c.Hint != "" {
				check.Hint = c.Hint + "; or " + check.Hint
			}
		case !c.Available:
			check.Status, check.Detail, check.Hint = "warn", joinMissing(c.Missing), c.Hint
		case len(c.Missing) > 0:
			check.Status, check.Detail = "warn", joinMissing(c.Missing)
		}
		add(check)
	}
	return out, nil
}

// checkJournals names what a damaged disk has made of operations that were cut.
func (s *Service) checkJournals() api.DoctorCheck {
	c := api.DoctorCheck{Name: "journals", Status: "ok", Detail: "all can be read"}
	files, err := filepath.Glob(filepath.Join(s.cfg.Dirs.Root, "sessions", "*", "*"+damaged))
	if err != nil {
		return api.DoctorCheck{Name: c.Name, Status: "fail", Detail: err.Error()}
	}
	for _, name := range files {
		c.Status, c.Detail, c.Hint = "warn", "set aside: "+name, "the operation that it belongs to was taken back; remove the file"
	}
	if files, err = filepath.Glob(filepath.Join(s.cfg.Dirs.Root, "sessions", "*", journalName)); err != nil {
		return api.DoctorCheck{Name: c.Name, Status: "fail", Detail: err.Error()}
	}
	for _, name := range files {
		if _, err := (&live{svc: s, id: id.Session(filepath.Base(filepath.Dir(name)))}).readJournal(); err != nil {
			c.Status, c.Detail = "fail", err.Error()
			c.Hint = "the session is left alone and nothing is swept; restore the file from a backup, or remove it to go on without"
		}
	}
	return c
}

func (s *Service) checkDisk() api.DoctorCheck {
	c := api.DoctorCheck{Name: "data directory", Status: "ok"}
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dirs.Root, &st); err != nil {
		c.Status, c.Detail = "fail", err.Error()
		return c
	}
	if info, err := os.Stat(s.cfg.Dirs.Root); err == nil && info.Mode().Perm()&0o077 != 0 {
		c.Status, c.Hint = "warn", fmt.Sprintf("others may look into it: chmod 700 %s", s.cfg.Dirs.Root)
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	c.Detail = fmt.Sprintf("%s has %.1f GB free", s.cfg.Dirs.Root, float64(free)/1e9)
	if free < lowSpace {
		c.Status, c.Hint = "warn", "free some space: perdure checkpoints S shows what sessions keep"
	}
	return c
}
