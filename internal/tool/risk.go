package tool

import (
	"encoding/json"
	"regexp"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
)

// Risks tells which calls may destroy something that is hard to bring back.
type Risks []risk

type risk struct {
	tool string // "*": any
	args *regexp.Regexp
}

// DefaultRisks are the calls before which a checkpoint is taken, unless somebody says otherwise. They are a net with wide meshes and no guard: what a
// command does cannot be told from its text.
func DefaultRisks() []string {
	return []string{
		`run=\brm\s+(-\S+\s+)*-\w*[rRf]`,
		`run=\b(shred|wipefs|mkfs\S*|dd|truncate|fdisk|parted)\s`,
		`run=\bfind\b.*\s-(delete|exec)\b`,
		`run=\brsync\b.*\s--delete`,
		`run=\b(chmod|chown|chgrp)\s+(-\S+\s+)*-\w*R`,
		`run=\bgit\s+(\S+\s+)*(reset\s+--hard|clean|checkout\s+(-f|--force|--|\.)|restore|rebase|stash\s+(drop|clear)|branch\s+-D|filter-branch|push\s+.*(-f|--force))`,
		`run=\b(apt|apt-get|dpkg|dnf|yum|apk|pip|pip3|npm|yarn|pnpm|cargo|gem|uv|conda)\s+(\S+\s+)*(install|add|remove|uninstall|purge|upgrade|update|autoremove|-i|-r|-P)\b`,
		`run=\b(kill|pkill|killall)\b`,
		`run=(?i)\b(drop\s+(table|database|schema|index)|truncate\s+table|delete\s+from|alter\s+table)\b`,
		`run=\b(make|just)\s+(\S+\s+)*(clean|distclean|install|uninstall)\b`,
		`python=\bshutil\.(rmtree|move)\b|\bos\.(remove|unlink|rmdir|removedirs|rename|replace|truncate|kill)\b|\.(unlink|rmdir)\(`,
		`python=(?i)\b(drop\s+(table|database|schema|index)|truncate\s+table|delete\s+from|alter\s+table)\b`,
	}
}

// maxRisks and maxRisk bound the list and one pattern, in bytes.
const (
	maxRisks = 100
	maxRisk  = 1000
)

// ParseRisks reads patterns of the form TOOL=EXPRESSION: calls of the tool, or of any for *, in whose arguments the expression (of package regexp) is found.
// What it is looked for in are the strings of the arguments, as they are, each on its own. Error: risk_invalid.
func ParseRisks(patterns []string) (Risks, error) {
	if len(patterns) > maxRisks {
		return nil, errdefs.New(errdefs.Invalid, "risk_invalid", "%d patterns of risky calls are more than %d", len(patterns), maxRisks)
	}
	var out Risks
	for _, p := range patterns {
		name, expr, ok := strings.Cut(p, "=")
		if !ok || name == "" || len(p) > maxRisk {
			return nil, errdefs.New(errdefs.Invalid, "risk_invalid", "%q is no pattern of risky calls", p).
				WithHint(`it has the form TOOL=EXPRESSION, such as 'run=\brm\b' or '*=production'`)
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "risk_invalid", "%q is no pattern of risky calls: %v", p, err).
				WithHint("the syntax is that of https://pkg.go.dev/regexp/syntax")
		}
		out = append(out, risk{name, re})
	}
	return out, nil
}

// Match reports whether a call is one of the risky ones.
func (r Risks) Match(tool string, args json.RawMessage) bool {
	var texts []string
	for _, one := range r {
		if one.tool != "*" && one.tool != tool {
			continue
		}
		if texts == nil {
			var v any
			if json.Unmarshal(args, &v) != nil {
				v = string(args)
			}
			texts = appendStrings([]string{""}, v)
		}
		for _, t := range texts {
			if one.args.MatchString(t) {
				return true
			}
		}
	}
	return false
}

// appendStrings appends the strings in a value of package json, and lists of strings also as one, as the words of a command are.
func appendStrings(out []string, v any) []string {
	switch v := v.(type) {
	case string:
		out = append(out, v)
	case []any:
		var words []string
		for _, e := range v {
			out = appendStrings(out, e)
			if w, ok := e.(string); ok {
				words = append(words, w)
			}
		}
		if len(words) > 1 {
			out = append(out, strings.Join(words, " "))
		}
	case map[string]any:
		for _, e := range v {
			out = appendStrings(out, e)
		}
	}
	return out
}
