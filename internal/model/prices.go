package model

import "perdure.dev/perdure/internal/event"

// Price is what a model costs, in millionths of a US dollar per million tokens: 3 dollars per million tokens are 3_000_000.
type Price struct {
	Input, Cached, Output int64
	// Long holds instead for a whole request with more than LongFrom input tokens. 0: there is no such step.
	LongFrom int64
	Long     Rates
}

// Rates are prices as in Price.
type Rates struct{ Input, Cached, Output int64 }

// Prices knows what models cost.
type Prices Catalog

// DefaultPrices are those of DefaultCatalog.
func DefaultPrices() Prices { return DefaultCatalog().Prices() }

// Cost returns what one request costs, in millionths of a US dollar, rounded up. A model without a price costs 0, which is to say: unknown.
func (p Prices) Cost(model string, u event.Usage) int64 {
	price := Catalog(p).Find(model).Price
	rates := Rates{price.Input, price.Cached, price.Output}
	if price.LongFrom > 0 && u.Input > price.LongFrom {
		rates = price.Long
	}
	total := (u.Input-u.Cached)*rates.Input + u.Cached*rates.Cached + u.Output*rates.Output
	return (total + 999_999) / 1_000_000
}
