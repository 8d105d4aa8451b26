package docs

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
)

var update = flag.Bool("update", false, "write the table of docs/errors.md anew")

const (
	tableBegin = "<!-- table: go test ./test/docs -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// entry is one error code, as the source uses it.
type entry struct {
	code, message string
	kinds         []string
}

func TestErrorTable(t *testing.T) {
	path := filepath.Join(root, "docs/errors.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatal("docs/errors.md has no table")
	}
	want := before + tableBegin + table(codes(t)) + tableEnd + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` ").FindAllStringSubmatch(rest, -1) {
		have[m[1]] = true
	}
	found := codes(t)
	if len(found) < 100 {
		t.Fatalf("only %d codes are found in the source", len(found))
	}
	for _, e := range found {
		if !have[e.code] {
			t.Errorf("docs/errors.md lacks %s: go test ./test/docs -update", e.code)
		}
		delete(have, e.code)
	}
	for code := range have {
		t.Errorf("docs/errors.md has %s, which the source does not use", code)
	}
}

func table(list []entry) string {
	var b strings.Builder
	b.WriteString("| code | kind | exit code | message |\n|---|---|---|---|\n")
	for _, e := range list {
		var exits []string
		for _, k := range e.kinds {
			if x := strconv.Itoa(errdefs.Kind(k).ExitCode()); !slices.Contains(exits, x) {
				exits = append(exits, x)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", e.code, strings.Join(e.kinds, ", "), strings.Join(exits, ", "), e.message)
	}
	return b.String()
}

// codes finds each code in the source: in errdefs.New, errdefs.Wrap, the guest's fail, and errors that are written out.
func codes(t *testing.T) []entry {
	t.Helper()
	files := goFiles(t, func(p string) bool {
		return !strings.HasSuffix(p, "_test.go") && !strings.Contains(p, "/test/") && !strings.Contains(p, "test/") && !strings.Contains(p, "/filters_generated")
	})
	consts, all := map[string]string{}, map[string]*entry{}
	var parsed []*ast.File
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		for _, d := range f.Decls {
			collectConsts(d, consts)
		}
	}
	add := func(kind, code, message ast.Expr) {
		c := value(code, consts)
		if !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).MatchString(c) {
			return
		}
		e := all[c]
		if e == nil {
			e = &entry{code: c}
			all[c] = e
		}
		if k := kindOf(kind); k != "" && !slices.Contains(e.kinds, k) {
			e.kinds = append(e.kinds, k)
			slices.Sort(e.kinds)
		}
		if m := plain(value(message, consts)); m != "" && (e.message == "" || m < e.message) {
			e.message = m
		}
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.CallExpr:
				switch name := callee(x.Fun); {
				case name == "errdefs.New" && len(x.Args) >= 3, name == "fail" && f.Name.Name == "inside" && len(x.Args) >= 3:
					add(x.Args[0], x.Args[1], x.Args[2])
				case name == "errdefs.Wrap" && len(x.Args) >= 4:
					add(x.Args[1], x.Args[2], x.Args[3])
				}
			case *ast.CompositeLit:
				if callee(x.Type) == "errdefs.Error" {
					fields := map[string]ast.Expr{}
					for _, el := range x.Elts {
						if kv, ok := el.(*ast.KeyValueExpr); ok {
							fields[callee(kv.Key)] = kv.Value
						}
					}
					add(fields["Kind"], fields["Code"], fields["Message"])
				}
			}
			return true
		})
	}
	var out []entry
	for _, e := range all {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Compare(a.code, b.code) })
	return out
}

func collectConsts(d ast.Decl, consts map[string]string) {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.CONST {
		return
	}
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		for i, name := range v.Names {
			if i < len(v.Values) {
				if lit, ok := v.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(strings.ToLower(name.Name), "code") {
					consts[name.Name], _ = strconv.Unquote(lit.Value)
				}
			}
		}
	}
}

func callee(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok {
			return id.Name + "." + x.Sel.Name
		}
	}
	return ""
}

// value is a string that the source spells out, or names by a constant.
func value(e ast.Expr, consts map[string]string) string {
	switch x := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(x.Value)
		return s
	case *ast.Ident:
		return consts[x.Name]
	case *ast.SelectorExpr:
		return consts[x.Sel.Name]
	case *ast.BinaryExpr:
		return value(x.X, consts)
	}
	return ""
}

func kindOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(x.Value)
		return s
	case *ast.SelectorExpr: // errdefs.NotFound
		return strings.TrimPrefix(strings.ToLower(regexp.MustCompile(`([A-Z])`).ReplaceAllString(x.Sel.Name, "_$1")), "_")
	}
	return ""
}

// plain makes a format readable in a table.
func plain(s string) string {
	s = regexp.MustCompile(`%[-+#0-9.]*[a-zA-Z]`).ReplaceAllString(s, "…")
	return strings.ReplaceAll(strings.TrimSpace(s), "|", "\\|")
}
