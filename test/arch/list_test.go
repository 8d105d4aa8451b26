package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "perdure.dev/perdure"

// pkg is a package of this module.
type pkg struct {
	name    string   // without the module
	dir     string   //
	files   []string // without tests
	imports []string // of this module, without it
}

func golist(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	return out
}

func packages(t *testing.T) []pkg {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(golist(t, "-json=ImportPath,Dir,GoFiles,Imports", "./..."))))
	var out []pkg
	for {
		var p struct {
			ImportPath, Dir  string
			GoFiles, Imports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		q := pkg{name: short(p.ImportPath), dir: p.Dir, files: p.GoFiles}
		for _, imp := range p.Imports {
			if s, ok := strings.CutPrefix(imp, module+"/"); ok {
				q.imports = append(q.imports, s)
			}
		}
		out = append(out, q)
	}
}

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// depsOf returns what a package imports: directly, or with all that those import.
func depsOf(t *testing.T, name string, direct bool) []string {
	t.Helper()
	format := "{{join .Deps \"\\n\"}}"
	if direct {
		format = "{{join .Imports \"\\n\"}}"
	}
	return strings.Fields(string(golist(t, "-f", format, "./"+name)))
}
