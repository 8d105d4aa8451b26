package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// A module that the source imports is required as such: the mark "indirect" tells a reader, and tools, that nobody here uses it.
func TestImportedModulesAreDirect(t *testing.T) {
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var indirect []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasSuffix(strings.TrimSpace(line), "// indirect") {
			indirect = append(indirect, f[0])
		}
	}
	if len(indirect) < 10 {
		t.Fatalf("only %d indirect modules are found in go.mod", len(indirect))
	}
	dec := json.NewDecoder(strings.NewReader(string(golist(t, "-json=ImportPath,Imports,TestImports,XTestImports", "./..."))))
	for {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		for _, list := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for _, imp := range list {
				for _, m := range indirect {
					if imp == m || strings.HasPrefix(imp, m+"/") {
						t.Errorf("%s imports %s, whose module %s is marked indirect in go.mod", p.ImportPath, imp, m)
					}
				}
			}
		}
	}
}
