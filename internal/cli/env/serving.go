package env

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"perdure.dev/perdure/internal/errdefs"
)

// Serving is how a daemon was started. It lies in the data directory while the daemon runs, and goes when it stops in order. So what
// is found there without a daemon was left by one that died, and the one that a command starts in its place is to be like it.
type Serving struct {
	Listen    string   `json:"listen,omitempty"`
	HostNames []string `json:"host_names,omitempty"`
	Flags     []string `json:"flags,omitempty"` // all others that were given
	// Models are the names of the environment's variables about models that were set. Their values are nobody's business.
	Models []string `json:"models,omitempty"`
}

// servingName is the name of the file in the data directory.
const servingName = "serving.json"

// modelVariables are what a daemon takes from its environment about models.
func modelVariables() []string {
	return []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "PERDURE_MODEL"}
}

// Keep writes down that a daemon serves, with the environment's variables.
func (s Serving) Keep(dataDir string, getenv func(string) string) error {
	s.Models = setOf(getenv)
	b, err := json.Marshal(s)
	if err == nil {
		path := filepath.Join(dataDir, servingName)
		err = errors.Join(os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
	}
	return errdefs.Wrap(err, errdefs.Unavailable, "store_io", "writing %s", servingName)
}

// Forget is for a daemon that stops in order.
func (s Serving) Forget(dataDir string) error {
	err := os.Remove(filepath.Join(dataDir, servingName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errdefs.Wrap(err, errdefs.Unavailable, "store_io", "removing %s", servingName)
}

func setOf(getenv func(string) string) []string {
	return slices.DeleteFunc(modelVariables(), func(name string) bool { return getenv(name) == "" })
}

// died returns how the daemon was started that died on a data directory, if one did. Ask it only while none answers there.
func died(dataDir string) (s Serving, ok bool) {
	b, err := os.ReadFile(filepath.Join(dataDir, servingName))
	return s, err == nil && json.Unmarshal(b, &s) == nil
}

func (s Serving) flags() []string {
	if s.Listen == "" {
		return s.Flags
	}
	out := append(slices.Clip(s.Flags), "--listen", s.Listen)
	for _, h := range s.HostNames {
		out = append(out, "--host-name", h)
	}
	return out
}

// FlagsOf returns the flags that were given, but for some, as arguments that give them again.
func FlagsOf(fs *pflag.FlagSet, but ...string) []string {
	var out []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || slices.Contains(but, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if v == "" {
				v = "0" // which a number does not show
			}
			out = append(out, "--"+f.Name+"="+v)
		}
	})
	return out
}

// start makes sure that a daemon answers. One that takes the place of one that died listens where that one did, and people are told
// what else is different.
func (e *Env) start(ctx context.Context, dataDir, socket string) error {
	e.spawning.Lock()
	defer e.spawning.Unlock()
	if answers(ctx, socket) {
		return nil
	}
	before, dead := died(dataDir)
	flags := before.flags()
	err := e.Spawn(ctx, dataDir, socket, flags...)
	note := "perdure: the daemon had died; another one is started"
	if before.Listen != "" && err != nil && strings.Contains(errdefs.HintOf(err), "(address_in_use)") {
		err = e.Spawn(ctx, dataDir, socket, before.Flags...)
		note += "; it does not listen on " + before.Listen + ", which is taken"
	}
	if err != nil || !dead || e.JSON {
		return err
	}
	now := setOf(e.Getenv)
	missing := slices.DeleteFunc(before.Models, func(name string) bool { return slices.Contains(now, name) })
	if len(missing) > 0 {
		note += "; it lacks " + strings.Join(missing, ", ") + ", which this environment does not set: to give it that, stop it and run perdure serve"
	}
	e.Note("%s", note)
	return nil
}

// revive starts a daemon in the place of one that died. One that was stopped in order was stopped by somebody who meant it.
func (e *Env) revive(ctx context.Context, dataDir, socket string) error {
	if _, dead := died(dataDir); !dead {
		return nil
	}
	return e.start(ctx, dataDir, socket)
}

// waiting tells people why nothing happens.
func (e *Env) waiting() {
	if !e.JSON {
		e.Note("perdure: the connection to the daemon is lost; trying again")
	}
}
