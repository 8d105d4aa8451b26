package model

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"strings"

	"gopkg.in/yaml.v3"

	"perdure.dev/perdure/internal/errdefs"
)

// Fact is what is known of a model. What is zero is unknown.
type Fact struct {
	Price     Price
	Window    int // tokens, input and output together
	MaxOutput int // tokens in one answer
}

// Catalog maps a model's full name, such as "openai/gpt-5", to what is known of it.
type Catalog map[string]Fact

// Find returns what is known of a model. A dated or "latest" name is that of the model itself. Of another name that begins with a known
// one, such as gpt-5-codex, the sizes are taken over, but not the price.
func (c Catalog) Find(name string) Fact {
	if f, ok := c[name]; ok {
		return f
	}
	if f, ok := c[undated(name)]; ok {
		return f
	}
	best := ""
	for known := range c {
		if strings.HasPrefix(name, known+"-") && len(known) > len(best) {
			best = known
		}
	}
	f := c[best]
	f.Price = Price{}
	return f
}

// undated takes off what providers append to a name for one state of the model: -20250929, -2025-08-07 or -latest.
func undated(name string) string {
	name = strings.TrimSuffix(name, "-latest")
	for _, form := range []string{"-dddddddd", "-dddd-dd-dd"} {
		if n := len(name) - len(form); n > 0 && shape(name[n:]) == form {
			return name[:n]
		}
	}
	return name
}

func shape(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return 'd'
		}
		return r
	}, s)
}

// CatalogFile is the name of the file in the data directory by which its owner corrects the catalog.
const CatalogFile = "models.yaml"

// entry is a model in the file. Prices are in US dollars per million tokens.
type entry struct {
	Input     *float64 `yaml:"input"`
	Cached    *float64 `yaml:"cached"`
	Output    *float64 `yaml:"output"`
	Window    *int     `yaml:"context_tokens"`
	MaxOutput *int     `yaml:"max_output_tokens"`
}

// LoadCatalog returns the default catalog with what a file says of some models. A missing file says nothing. Error: models_invalid.
func LoadCatalog(path string) (Catalog, error) {
	c := DefaultCatalog()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	var file map[string]entry
	if err == nil {
		dec := yaml.NewDecoder(bytes.NewReader(b))
		dec.KnownFields(true)
		if err = dec.Decode(&file); errors.Is(err, io.EOF) {
			err = nil // an empty file
		}
	}
	if err != nil {
		return nil, invalidCatalog(path, err)
	}
	for name, e := range file {
		f, err := e.over(c.Find(name))
		if err != nil {
			return nil, invalidCatalog(path, errors.New(name+": "+err.Error()))
		}
		c[name] = f
	}
	return c, nil
}

func invalidCatalog(path string, err error) error {
	return &errdefs.Error{
		Kind: errdefs.Invalid, Code: "models_invalid", Message: "the file " + path + " does not describe models", Err: err,
		Hint: "it maps names such as openai/gpt-5 to input, cached, output (US dollars per million tokens), context_tokens and max_output_tokens",
	}
}

// over returns the fact with what the entry says. One price replaces all of them.
func (e entry) over(f Fact) (Fact, error) {
	if e.Input != nil || e.Cached != nil || e.Output != nil {
		f.Price = Price{}
	}
	for _, p := range []struct {
		from *float64
		to   *int64
	}{{e.Input, &f.Price.Input}, {e.Cached, &f.Price.Cached}, {e.Output, &f.Price.Output}} {
		if p.from == nil {
			continue
		}
		if *p.from < 0 || *p.from > 1e6 {
			return f, errors.New("no price per million tokens")
		}
		*p.to = int64(math.Round(*p.from * 1e6))
	}
	if e.Input != nil && e.Cached == nil {
		f.Price.Cached = f.Price.Input
	}
	for _, n := range []struct{ from, to *int }{{e.Window, &f.Window}, {e.MaxOutput, &f.MaxOutput}} {
		if n.from == nil {
			continue
		}
		if *n.from < 0 {
			return f, errors.New("a negative number of tokens")
		}
		*n.to = *n.from
	}
	return f, nil
}

// Prices are those of the catalog.
func (c Catalog) Prices() Prices { return Prices(maps.Clone(c)) }
