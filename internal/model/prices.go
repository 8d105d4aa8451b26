package model

import "perdure.dev/perdure/internal/event"

// Price is what a model costs, in millionths of a US dollar per million tokens, which is the same number as micro-dollars per token
// times a million: 3 dollars per million tokens are 3_000_000.
type Price struct {
	Input, Cached, Output int64
}

// Prices maps a model's full name to its price. A model that is not in it costs 0, which is to say: unknown.
type Prices map[string]Price

// DefaultPrices returns list prices of well-known models. They change; the daemon's configuration overrides them.
func DefaultPrices() Prices {
	return Prices{
		"openai/gpt-5":                {1_250_000, 125_000, 10_000_000},
		"openai/gpt-5-mini":           {250_000, 25_000, 2_000_000},
		"openai/gpt-5-nano":           {50_000, 5_000, 400_000},
		"openai/gpt-4.1":              {2_000_000, 500_000, 8_000_000},
		"openai/gpt-4.1-mini":         {400_000, 100_000, 1_600_000},
		"openai/gpt-4o":               {2_500_000, 1_250_000, 10_000_000},
		"openai/gpt-4o-mini":          {150_000, 75_000, 600_000},
		"anthropic/claude-opus-4-5":   {5_000_000, 500_000, 25_000_000},
		"anthropic/claude-sonnet-4-5": {3_000_000, 300_000, 15_000_000},
		"anthropic/claude-haiku-4-5":  {1_000_000, 100_000, 5_000_000},
	}
}

// Cost returns what the usage costs, in millionths of a US dollar, rounded up.
func (p Prices) Cost(model string, u event.Usage) int64 {
	price, ok := p[model]
	if !ok {
		return 0
	}
	total := (u.Input-u.Cached)*price.Input + u.Cached*price.Cached + u.Output*price.Output
	return (total + 999_999) / 1_000_000
}
