package tool_test

import (
	"encoding/json"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/tool"
)

func TestDefaultRisks(t *testing.T) {
	risks, err := tool.ParseRisks(tool.DefaultRisks())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tool, arg string
		want      bool
	}{
		{"run", "rm -rf build", true},
		{"run", "cd /srv && sudo rm -v -r data", true},
		{"run", "rm note.txt", false},
		{"run", "echo inform -r", false},
		{"run", "git reset --hard HEAD~1", true},
		{"run", "git -C repo clean -fdx", true},
		{"run", "git checkout main", false},
		{"run", "git checkout -- file", true},
		{"run", "git commit -m 'reset the counter'", false},
		{"run", "git push origin main --force", true},
		{"run", "git push origin main", false},
		{"run", "apt-get -y install jq", true},
		{"run", "pip install requests", true},
		{"run", "pip list", false},
		{"run", "npm run build", false},
		{"run", "pkill -9 server", true},
		{"run", "psql -c 'DROP TABLE users'", true},
		{"run", "dd if=/dev/zero of=disk", true},
		{"run", "git add dd.txt", false},
		{"run", "find . -name '*.o' -delete", true},
		{"run", "find . -name '*.o'", false},
		{"run", "make -j2 clean", true},
		{"run", "make -j2", false},
		{"run", "first\nrm -rf second", true},
		{"python", "import shutil; shutil.rmtree('x')", true},
		{"python", "print('rm -rf /')", false},
		{"python", "Path('x').unlink()", true},
		{"write_file", "rm -rf x", false},
	} {
		key := map[string]string{"run": "command", "python": "code"}[c.tool]
		if key == "" {
			key = "text"
		}
		args, err := json.Marshal(map[string]any{key: c.arg, "timeout_seconds": 5})
		if err != nil {
			t.Fatal(err)
		}
		if got := risks.Match(c.tool, args); got != c.want {
			t.Errorf("%s %q: risky is %v", c.tool, c.arg, got)
		}
	}
}

func TestRisksOfOnesOwn(t *testing.T) {
	risks, err := tool.ParseRisks([]string{`*=production`, `run=^deploy (now|--force)$`, "finish="})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tool, args string
		want       bool
	}{
		{"python", `{"code": "go('production')"}`, true},
		{"read_file", `{"nested": {"list": ["x", "in production"]}}`, true},
		{"run", `{"command": "deploy now"}`, true},
		{"run", `{"command": "deploy later"}`, false},
		{"run", `{"argv": ["deploy", "--force"]}`, true},
		{"run", `no JSON, in production`, true},
		{"run", ``, false},
		{"finish", `{}`, true},
	} {
		if got := risks.Match(c.tool, json.RawMessage(c.args)); got != c.want {
			t.Errorf("%s %s: risky is %v", c.tool, c.args, got)
		}
	}
}

func TestBadRisks(t *testing.T) {
	for _, p := range []string{"", "run", "=x", "run=(", "run=" + strings.Repeat("x", 2000)} {
		if _, err := tool.ParseRisks([]string{p}); errdefs.CodeOf(err) != "risk_invalid" || errdefs.HintOf(err) == "" {
			t.Errorf("%.20q: %v", p, err)
		}
	}
	if _, err := tool.ParseRisks(make([]string, 101)); errdefs.CodeOf(err) != "risk_invalid" {
		t.Errorf("too many: %v", err)
	}
}
