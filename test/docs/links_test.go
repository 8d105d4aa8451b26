package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// pages are the Markdown files of the tree, by path from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != root || e.Name() == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d pages are found", len(out))
	}
	return out
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestRelativeLinksResolve(t *testing.T) {
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}

// Lines move; names stay. A page that names lines is wrong after the next commit.
func TestNoPageNamesLines(t *testing.T) {
	re := regexp.MustCompile(`\.go(:\d+|#L\d+)`)
	for page, text := range pages(t) {
		if m := re.FindString(text); m != "" {
			t.Errorf("%s names a line: %s", page, m)
		}
	}
}

// command is what a reader would type: perdure VERB in a code block or between backquotes.
var command = regexp.MustCompile("(?m)(?:^\\$? *|`|&& |; )(?:bin/)?perdure ([a-z]+)")

func TestEveryCommandExists(t *testing.T) {
	help, err := exec.CommandContext(t.Context(), "go", "run", "perdure.dev/perdure/cmd/perdure", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`).FindAllStringSubmatch(string(help), -1) {
		verbs[m[1]] = true
	}
	if len(verbs) < 20 {
		t.Fatalf("the help names only %d commands:\n%s", len(verbs), help)
	}
	named := map[string]bool{}
	for page, text := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			named[m[1]] = true
			if !verbs[m[1]] {
				t.Errorf("%s names perdure %s, which does not exist", page, m[1])
			}
		}
	}
	for v := range verbs {
		if !named[v] && v != "help" {
			t.Errorf("no page shows perdure %s", v)
		}
	}
}

// TestEveryNamedTestExists looks for each test in backquotes: a function, a case of a suite, or a script.
func TestEveryNamedTestExists(t *testing.T) {
	known := map[string]bool{}
	sources := goFiles(t, func(string) bool { return true })
	for _, src := range sources {
		b, err := os.ReadFile(src)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)`).FindAllStringSubmatch(string(b), -1) {
			known[m[1]] = true
		}
		if strings.Contains(src, "sandboxtest") || strings.Contains(src, "eventtest") {
			for _, m := range regexp.MustCompile(`\{"([A-Z]\w+)", \w+\}`).FindAllStringSubmatch(string(b), -1) {
				known[m[1]] = true
			}
		}
	}
	scripts, err := filepath.Glob(root + "/test/script/testdata/*/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		known[filepath.Base(s)] = true
	}
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*|[A-Z]\\d+_\\w+|\\w+\\.txtar)`")
	for page, text := range pages(t) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("%s names the test %s, which does not exist", page, m[1])
			}
		}
	}
	rows := 0
	for line := range strings.Lines(pages(t)["docs/hazards.md"]) {
		if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|-") && !strings.HasPrefix(line, "| What") {
			rows++
			if !name.MatchString(line) && !strings.Contains(line, "no test yet") {
				t.Errorf("docs/hazards.md: no test is named in %s", line)
			}
		}
	}
	if rows < 15 {
		t.Errorf("docs/hazards.md has only %d rows", rows)
	}
}

func goFiles(t *testing.T, want func(path string) bool) []string {
	t.Helper()
	var out []string
	for _, top := range []string{"api", "client", "cmd", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, e os.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".go" && want(path) {
				out = append(out, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
