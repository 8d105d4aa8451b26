package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The variants that are compared.
const (
	perdure = "perdure"
	stock   = "stock"
	files   = "copy" // of the files
)

// Figure is one measure of one variant.
type Figure struct {
	Group   string    `json:"group"`
	Name    string    `json:"name"`
	Variant string    `json:"variant"`
	Unit    string    `json:"unit"` // ms, MB, events/s, …
	N       int       `json:"n"`
	Median  float64   `json:"median"`
	P99     float64   `json:"p99"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Samples []float64 `json:"samples,omitempty"` // in the order taken; left out when there are many
}

// Goal is what a measure should come to.
type Goal struct {
	Text string  `json:"text"`
	Got  float64 `json:"got"`
	Want float64 `json:"want"`
	Met  bool    `json:"met"`
}

// Report collects a run. Benchmarks add to it one after the other.
type Report struct {
	Machine Machine   `json:"machine"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Figures []Figure  `json:"figures"`
	Goals   []Goal    `json:"goals"`

	samples map[key][]float64
	order   []key
	units   map[key]string
}

type key struct{ group, name, variant string }

func newReport(b *testing.B) *Report {
	return &Report{Machine: describe(b), Began: time.Now().UTC().Truncate(time.Second), samples: map[key][]float64{}, units: map[key]string{}}
}

// add adds one sample.
func (r *Report) add(group, name, variant, unit string, value float64) {
	k := key{group, name, variant}
	if _, ok := r.samples[k]; !ok {
		r.order = append(r.order, k)
		r.units[k] = unit
	}
	r.samples[k] = append(r.samples[k], value)
}

// time adds how long do took, in milliseconds.
func (r *Report) time(group, name, variant string, do func()) {
	began := time.Now()
	do()
	r.add(group, name, variant, "ms", milliseconds(time.Since(began)))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *Report) median(group, name, variant string) float64 {
	return quantile(r.samples[key{group, name, variant}], 0.5)
}

// quantile takes the nearest rank. Of nothing it is 0.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	if q == 0.5 && len(s)%2 == 0 {
		return (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// goal notes whether got is below want (or, with atLeast, above). Without samples there is nothing to note.
func (r *Report) goal(text string, got, want float64, atLeast bool) {
	if got == 0 {
		return
	}
	met := got <= want
	if atLeast {
		met = got >= want
	}
	r.Goals = append(r.Goals, Goal{Text: text, Got: round(got), Want: want, Met: met})
}

const keptSamples = 40 // of one figure in the JSON file

// finish sums up what has been measured so far.
func (r *Report) finish() {
	r.Figures = nil
	r.Seconds = round(time.Since(r.Began).Seconds())
	for _, k := range r.order {
		s := r.samples[k]
		f := Figure{
			Group: k.group, Name: k.name, Variant: k.variant, Unit: r.units[k], N: len(s), Median: round(quantile(s, 0.5)),
			P99: round(quantile(s, 0.99)), Min: round(slices.Min(s)), Max: round(slices.Max(s)),
		}
		if len(s) <= keptSamples {
			for _, v := range s {
				f.Samples = append(f.Samples, round(v))
			}
		}
		r.Figures = append(r.Figures, f)
	}
}

// round keeps three or four digits, which is more than the machine's noise leaves.
func round(v float64) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return out
}

// markdown renders a run as tables: a row per measure, a column per variant, and the ratio to what else there is.
func (r *Report) markdown() string {
	var w bytes.Buffer
	fmt.Fprintf(&w, "# Figures of %s\n\n%s\n\nMedians of n samples; the ratio is Perdure's part of the other's. The run took %.0f s.\n",
		r.Began.Format("2 January 2006"), r.Machine, r.Seconds)
	rows := map[string]map[string]map[string]Figure{}
	var groups []string
	names := map[string][]string{}
	for _, f := range r.Figures {
		if rows[f.Group] == nil {
			groups = append(groups, f.Group)
			rows[f.Group] = map[string]map[string]Figure{}
		}
		if rows[f.Group][f.Name] == nil {
			names[f.Group] = append(names[f.Group], f.Name)
			rows[f.Group][f.Name] = map[string]Figure{}
		}
		rows[f.Group][f.Name][f.Variant] = f
	}
	for _, g := range groups {
		variants := map[string]bool{}
		for _, row := range rows[g] {
			for v := range row {
				variants[v] = true
			}
		}
		cols := slices.SortedFunc(maps.Keys(variants), byVariant)
		fmt.Fprintf(&w, "\n## %s\n\n| | %s | ratio |\n|---|%s---:|\n", g, strings.Join(cols, " | "), strings.Repeat("---:|", len(cols)))
		for _, n := range names[g] {
			cells, ratio := []string{n}, ""
			for _, v := range cols {
				f, ok := rows[g][n][v]
				if !ok {
					cells = append(cells, "")
					continue
				}
				cell := fmt.Sprintf("%v %s", f.Median, f.Unit)
				if f.N >= 100 {
					cell += fmt.Sprintf(" (p99 %v)", f.P99)
				}
				cells = append(cells, fmt.Sprintf("%s, n=%d", cell, f.N))
				if own, ok := rows[g][n][perdure]; ok && v != perdure && ratio == "" && f.Median > 0 {
					ratio = fmt.Sprintf("%.2f", own.Median/f.Median)
				}
			}
			fmt.Fprintf(&w, "| %s | %s |\n", strings.Join(cells, " | "), ratio)
		}
	}
	fmt.Fprintf(&w, "\n## Goals\n\n| goal | got | met |\n|---|---:|---|\n")
	for _, g := range r.Goals {
		met := "yes"
		if !g.Met {
			met = "**no**"
		}
		fmt.Fprintf(&w, "| %s | %v | %s |\n", g.Text, g.Got, met)
	}
	return w.String()
}

// byVariant puts ours first, then the nearest alternative.
func byVariant(a, b string) int {
	rank := map[string]int{perdure: 0, stock: 1, files: 3}
	ra, ok := rank[a]
	if !ok {
		ra = 2
	}
	rb, ok := rank[b]
	if !ok {
		rb = 2
	}
	if ra != rb {
		return ra - rb
	}
	return strings.Compare(a, b)
}

// write keeps the results in the tree.
func (r *Report) write(b *testing.B, dir string) {
	b.Helper()
	text, err := json.MarshalIndent(r, "", " ")
	must(b, err)
	must(b, os.MkdirAll(dir, 0o755))
	must(b, os.WriteFile(filepath.Join(dir, "results.json"), append(text, '\n'), 0o644))
	must(b, os.WriteFile(filepath.Join(dir, "results.md"), []byte(r.markdown()), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
