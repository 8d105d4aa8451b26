package model

import (
	"context"
	"maps"
	"slices"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
)

// Constructor makes a provider for a model; name is what stands after the provider's word, such as "gpt-5" or a file name.
// Errors: model_key_missing, model_invalid.
type Constructor func(ctx context.Context, name string) (Provider, error)

// Registry maps a provider's word to its constructor. The daemon fills it.
type Registry map[string]Constructor

// Open returns the provider for "provider/model" or "provider:file". Errors: model_unknown, and those of the constructor.
func (r Registry) Open(ctx context.Context, spec string) (Provider, error) {
	word, name := spec, ""
	if i := strings.IndexAny(spec, "/:"); i >= 0 {
		word, name = spec[:i], spec[i+1:]
	}
	open, ok := r[word]
	if !ok || name == "" {
		return nil, errdefs.New(errdefs.Invalid, "model_unknown", "there is no model %q", spec).
			WithHint("write PROVIDER/MODEL, such as openai/gpt-5 or scripted:turns.yaml; the providers are: %s",
				strings.Join(slices.Sorted(maps.Keys(r)), ", "))
	}
	return open(ctx, name)
}
