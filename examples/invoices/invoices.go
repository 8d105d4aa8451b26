// Package invoices holds the example that `perdure demo` runs: a data file with invoices, and the script by which the scripted
// model provider plays an agent that works on it. README.md describes both.
package invoices

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for the files
	"io"
	"strings"
)

//go:generate go run ./generate

// The names of the files.
const (
	DataName   = "invoices.csv.gz"
	ScriptName = "agent.yaml"
)

//go:embed invoices.csv.gz
var data string

//go:embed agent.yaml
var script string

// Data is the data file: CSV, compressed with gzip.
func Data() string { return data }

// Script is a file for the scripted model provider.
func Script() string { return script }

// Facts are what can be said of the data file by counting.
type Facts struct {
	Rows     int // without the header
	Lines    int // rows that differ from each other
	Invoices int // invoice ids that differ from each other
	Bytes    int // uncompressed
}

// Count reads the data file and counts. It shares no code with the script, whose results it is there to check.
func Count() (Facts, error) {
	z, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		return Facts{}, err
	}
	content, err := io.ReadAll(z)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Bytes: len(content)}
	lines, ids := map[string]bool{}, map[string]bool{}
	for i, l := range bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
		if i == 0 {
			continue
		}
		f.Rows++
		lines[string(l)] = true
		id, _, _ := bytes.Cut(l, []byte(","))
		ids[string(id)] = true
	}
	f.Lines, f.Invoices = len(lines), len(ids)
	return f, nil
}
