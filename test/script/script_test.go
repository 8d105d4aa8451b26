package script

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"perdure.dev/perdure/api"
)

var binDir string // set once by TestMain, before any test

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "psb")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // for scripts that run as nobody
		panic(err)
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/...")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		os.Stderr.Write(out)
		return 1
	}
	binDir = dir
	return m.Run()
}

func TestScripts(t *testing.T) {
	drivers := available(t)
	t.Run("any", func(t *testing.T) { scripts(t, "any", "process", drivers) })
	for _, driver := range []string{"gvisor", "process"} {
		if !drivers[driver] {
			t.Logf("this machine cannot run the driver %s: its scripts are left out", driver)
			continue
		}
		t.Run(driver, func(t *testing.T) {
			scripts(t, "both", driver, drivers)
			if driver == "gvisor" {
				scripts(t, "gvisor", driver, drivers)
			}
		})
	}
}

func scripts(t *testing.T, dir, driver string, drivers map[string]bool) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", dir), RequireUniqueNames: true, Cmds: commands,
		Setup: func(env *testscript.Env) error { return setup(env, driver) },
		Condition: func(cond string) (bool, error) {
			return drivers[cond], nil
		},
	})
}

// available asks a daemon which drivers run here.
func available(t *testing.T) map[string]bool {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	out, err := w.perdure("doctor", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var d api.DoctorReport
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, x := range d.Drivers {
		have[x.Name] = x.Available
	}
	return have
}
