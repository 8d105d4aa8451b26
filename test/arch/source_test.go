package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// each parses every source file of the module, tests and generated code left out.
func each(t *testing.T, fn func(p pkg, fset *token.FileSet, f *ast.File)) {
	t.Helper()
	for _, p := range packages(t) {
		for _, name := range p.files {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if !ast.IsGenerated(f) {
				fn(p, fset, f)
			}
		}
	}
}

// A package without a comment makes its reader guess what it is for.
func TestEveryPackageHasAComment(t *testing.T) {
	has := map[string]bool{}
	generated := map[string]bool{}
	for _, p := range packages(t) {
		generated[p.name] = true
	}
	each(t, func(p pkg, _ *token.FileSet, f *ast.File) {
		generated[p.name] = false
		if f.Doc != nil && len(strings.Fields(f.Doc.Text())) >= 5 {
			has[p.name] = true
		}
	})
	for _, p := range packages(t) {
		if !has[p.name] && !generated[p.name] && len(p.files) > 0 {
			t.Errorf("%s has no package comment", p.name)
		}
	}
}

// Things that happen because a package is linked in cannot be ordered, tested or left out.
func TestNoInitFunctions(t *testing.T) {
	each(t, func(p pkg, fset *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s: func init", fset.Position(fn.Pos()))
			}
		}
	})
}

// A context made below main cannot be canceled by anybody.
func TestNoBackgroundContextBelowMain(t *testing.T) {
	each(t, func(p pkg, fset *token.FileSet, f *ast.File) {
		if f.Name.Name == "main" || strings.HasPrefix(p.name, "test/") || strings.HasSuffix(p.name, "test") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if ok && x.Name == "context" && (sel.Sel.Name == "Background" || sel.Sel.Name == "TODO") {
				t.Errorf("%s: context.%s", fset.Position(call.Pos()), sel.Sel.Name)
			}
			return true
		})
	})
}

// A file that is too long is several things. Generated code does not count.
func TestFilesAreShort(t *testing.T) {
	const most = 800
	each(t, func(_ pkg, fset *token.FileSet, f *ast.File) {
		if n := fset.Position(f.End()).Line; n > most {
			t.Errorf("%s has %d lines; more than %d need a reason in docs/architecture.md and an exception here", fset.Position(f.Pos()).Filename, n, most)
		}
	})
}

// Interfaces that nobody can hold in the head are not interfaces.
func TestInterfacesAreSmall(t *testing.T) {
	const most = 10
	each(t, func(_ pkg, fset *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			ts, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if it, ok := ts.Type.(*ast.InterfaceType); ok && len(it.Methods.List) > most {
				t.Errorf("%s: interface %s has %d methods, more than %d", fset.Position(ts.Pos()), ts.Name.Name, len(it.Methods.List), most)
			}
			return true
		})
	})
}
