package script

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// jsonCheck is json FILE PATH [OP VALUE]. FILE may be stdout or stderr. PATH is keys and indexes with dots between them, and len at its end is the
// length. Without OP the value must be there. The ops are ==, !=, ~ (a regular expression), > and < (numbers).
func jsonCheck(ts *testscript.TestScript, neg bool, args []string) {
	v, err := lookup(ts.ReadFile(arg(ts, args, 0)), arg(ts, args, 1))
	if len(args) == 2 {
		if (err == nil) == neg {
			ts.Fatalf("%s: %v, %v", args[1], v, err)
		}
		return
	}
	ts.Check(err)
	got, want := text(v), arg(ts, args, 3)
	var ok bool
	switch args[2] {
	case "==":
		ok = got == want
	case "!=":
		ok = got != want
	case "~":
		ok, err = regexp.MatchString(want, got)
	case ">", "<":
		var a, b float64
		if a, err = strconv.ParseFloat(got, 64); err == nil {
			b, err = strconv.ParseFloat(want, 64)
		}
		ok = args[2] == ">" && a > b || args[2] == "<" && a < b
	default:
		ts.Fatalf("no operator %q", args[2])
	}
	ts.Check(err)
	if ok == neg {
		ts.Fatalf("%s is %s, want %s %s", args[1], got, args[2], want)
	}
}

// getvar NAME FILE PATH puts a value into a variable.
func getvar(ts *testscript.TestScript, _ bool, args []string) {
	v, err := lookup(ts.ReadFile(arg(ts, args, 1)), arg(ts, args, 2))
	ts.Check(err)
	ts.Setenv(args[0], text(v))
}

func lookup(doc, path string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("no JSON: %w in %.200q", err, doc)
	}
	if path == "." {
		return v, nil
	}
	for key := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = x[key]; !ok {
				return nil, fmt.Errorf("there is no %s in %s", key, path)
			}
		case []any:
			if key == "len" {
				v = json.Number(strconv.Itoa(len(x)))
				continue
			}
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				return nil, fmt.Errorf("there is no %s of %d in %s", key, len(x), path)
			}
			v = x[i]
		default:
			return nil, fmt.Errorf("%s goes too deep", path)
		}
	}
	return v, nil
}

func text(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case string:
		return x
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
