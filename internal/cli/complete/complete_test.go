package complete

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/internal/cli/env"
)

// TestBash drives the script as bash would, with a program in perdure's place that says what it was asked.
func TestBash(t *testing.T) {
	for _, x := range []struct{ line, point, asked, answer, want string }{
		{"perdure show de", "", "show|de", "desk\ndesk-1\nother\n:4", "desk desk-1"},
		{"perdure show ", "", "show|", "desk\n:4", "desk"},
		{"perdure fork desk@lo", "", "fork|desk@lo", "desk@loaded\ndesk@low level\n:6", `@loaded @low\ level nospace`},
		{"perdure fork desk@", "", "fork|desk@", "desk@loaded\n:6", "@loaded nospace"},
		{"perdure cp des", "", "cp|des", "desk:\n:2", "desk: nospace default"},
		{"perdure  exec desk -- ls x", "", "exec|desk|--|ls|x", ":0", "default"},
		{"perdure wait desk --for=do", "", "wait|desk|--for=do", "done\nidle\n:4", "done"},
		{"perdure show x", "", "show|x", "desk\n:1", ""},
	} {
		script := bash + `
perdure() { shift; local IFS='|'; asked="$*"; echo "$asked" >&3; printf '%s\n' "$ANSWER"; }
compopt() { options+=" $2"; }
COMP_LINE=$LINE COMP_POINT=${#LINE}
# Bash's own rule: blanks divide, : and = are words of their own, and @ begins one.
spaced=$(sed 's/[:=]\+/ & /g; s/@/ @/g' <<<"$LINE")
read -ra COMP_WORDS <<<"$spaced"
[[ $LINE == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_perdure
echo "${COMPREPLY[*]}${options:+$options}"
`
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "exec 3>&2 2>/dev/null\n"+script)
		cmd.Env = append(cmd.Environ(), "LINE="+x.line, "ANSWER="+x.answer)
		var asked strings.Builder
		cmd.Stderr = &asked
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(asked.String()) != x.asked || strings.TrimSpace(string(out)) != x.want {
			t.Errorf("%q: asked %q, offered %q, %v; want %q, %q", x.line, asked.String(), out, err, x.asked, x.want)
		}
	}
}

// Every command that takes a session is in the table.
func TestNothingIsForgotten(t *testing.T) {
	if got, directive := argument(t.Context(), &env.Env{}, []kind{session}, []string{"one"}, ""); got != nil || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("after the last argument: %v, %d", got, directive)
	}
	for path, kinds := range arguments {
		if len(kinds) == 0 || slices.Contains(kinds, 0) || !regexp.MustCompile(`^[a-z]+( [a-z]+)?$`).MatchString(path) {
			t.Errorf("%q: %v", path, kinds)
		}
	}
}
