package model_test

import (
	"os"
	"path/filepath"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

func TestCatalogFindsModels(t *testing.T) {
	c := model.Catalog{
		"openai/gpt-5":      {Price: model.Price{Input: 5}, Window: 400},
		"openai/gpt-5-mini": {Price: model.Price{Input: 1}, Window: 300},
	}
	for name, want := range map[string]model.Fact{
		"openai/gpt-5":                 c["openai/gpt-5"],
		"openai/gpt-5-2025-08-07":      c["openai/gpt-5"],
		"openai/gpt-5-20250807":        c["openai/gpt-5"],
		"openai/gpt-5-latest":          c["openai/gpt-5"],
		"openai/gpt-5-mini-2025-08-07": c["openai/gpt-5-mini"],
		"openai/gpt-5-codex":           {Window: 400}, // may cost something else
		"openai/gpt-5-mini-fast":       {Window: 300},
		"openai/gpt-50":                {},
		"openai/gpt":                   {},
		"anthropic/gpt-5":              {},
	} {
		if got := c.Find(name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestDefaultCatalog looks for slips of the pen: a price of a thousand dollars, a cache that costs more than it saves.
func TestDefaultCatalog(t *testing.T) {
	for name, f := range model.DefaultCatalog() {
		p := f.Price
		if p.Cached > p.Input || p.Input > p.Output || p.Output > 100_000_000 || p.LongFrom > 0 && (p.Long.Input <= p.Input || p.Long.Output <= p.Output) {
			t.Errorf("%s costs %+v", name, p)
		}
		if f.Window < 100_000 || f.Window > 2_000_000 || f.MaxOutput < 10_000 || f.MaxOutput > f.Window {
			t.Errorf("%s has sizes %d, %d", name, f.Window, f.MaxOutput)
		}
	}
}

func TestLongRequestsCostMore(t *testing.T) {
	p := model.Prices{"a/b": {Price: model.Price{Input: 1e6, Cached: 1e5, Output: 2e6, LongFrom: 1000, Long: model.Rates{Input: 2e6, Cached: 2e5, Output: 3e6}}}}
	for _, x := range []struct {
		in, cached, out, want int64
	}{{1000, 0, 0, 1000}, {1001, 0, 0, 2002}, {1001, 1, 10, 2031}, {0, 0, 7, 14}} {
		if got := p.Cost("a/b", event.Usage{Input: x.in, Cached: x.cached, Output: x.out}); got != x.want {
			t.Errorf("%+v costs %d", x, got)
		}
	}
}

func TestCatalogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), model.CatalogFile)
	if c, err := model.LoadCatalog(path); err != nil || len(c) != len(model.DefaultCatalog()) {
		t.Fatalf("without a file: %d models, %v", len(c), err)
	}
	load := func(text string) (model.Catalog, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return model.LoadCatalog(path)
	}
	c, err := load(`
openai/gpt-5: {input: 1.5, cached: 0.5, output: 11}   # a price of one's own; the sizes stay
openai/gpt-5.4: {input: 3, output: 16}                # without the step for long requests, and without a price for the cache
openai/llama: {context_tokens: 8192, max_output_tokens: 1024}
anthropic/claude-opus-5-5-eu: {context_tokens: 500000}
`)
	if err != nil {
		t.Fatal(err)
	}
	known := model.DefaultCatalog()
	for name, want := range map[string]model.Fact{
		"openai/gpt-5":                 {Price: model.Price{Input: 1_500_000, Cached: 500_000, Output: 11_000_000}, Window: known["openai/gpt-5"].Window, MaxOutput: known["openai/gpt-5"].MaxOutput},
		"openai/gpt-5.4":               {Price: model.Price{Input: 3_000_000, Cached: 3_000_000, Output: 16_000_000}, Window: known["openai/gpt-5.4"].Window, MaxOutput: known["openai/gpt-5.4"].MaxOutput},
		"openai/llama":                 {Window: 8192, MaxOutput: 1024},
		"anthropic/claude-opus-5-5-eu": {Window: 500_000, MaxOutput: known["anthropic/claude-opus-5-5"].MaxOutput},
		"openai/gpt-4o":                known["openai/gpt-4o"],
	} {
		if got := c.Find(name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if c, err := load(""); err != nil || len(c) != len(known) {
		t.Errorf("an empty file: %d models, %v", len(c), err)
	}
	for _, bad := range []string{"openai/gpt-5: {price: 3}", "openai/gpt-5: {input: -1}", "openai/gpt-5: {context_tokens: -1}", "- a", "openai/gpt-5: {input: .inf}", "{"} {
		if _, err := load(bad); errdefs.CodeOf(err) != "models_invalid" || errdefs.HintOf(err) == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
