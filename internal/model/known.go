package model

const (
	k = 1_000     // tokens
	m = 1_000_000 // tokens
)

// DefaultCatalog returns list prices and sizes of well-known models, as their makers published them in November 2026. They change: a file
// corrects them (see LoadCatalog), and docs/models.md says how.
//
// Sources: https://platform.claude.com/docs/en/about-claude/pricing, https://platform.claude.com/docs/en/models/overview,
// https://developers.openai.com/api/docs/pricing and the pages of single models below https://developers.openai.com/api/docs/models.
// Left out are surcharges for writing to a cache, for fast modes and for regions, and discounts for batches.
func DefaultCatalog() Catalog {
	return Catalog{
		"anthropic/claude-fable-5-1":  {dollars(10, .25, 50), 1 * m, 128 * k},
		"anthropic/claude-fable-5":    {dollars(10, 1, 50), 1 * m, 128 * k},
		"anthropic/claude-opus-5-5":   {dollars(4, .20, 20), 1 * m, 128 * k},
		"anthropic/claude-opus-5":     {dollars(5, .50, 25), 1 * m, 128 * k},
		"anthropic/claude-opus-4-8":   {dollars(5, .50, 25), 1 * m, 128 * k},
		"anthropic/claude-opus-4-7":   {dollars(5, .50, 25), 1 * m, 128 * k},
		"anthropic/claude-opus-4-6":   {dollars(5, .50, 25), 1 * m, 128 * k},
		"anthropic/claude-opus-4-5":   {dollars(5, .50, 25), 200 * k, 64 * k},
		"anthropic/claude-sonnet-5-5": {dollars(2, .10, 10), 1 * m, 128 * k},
		"anthropic/claude-sonnet-5":   {dollars(2, .20, 10), 1 * m, 128 * k},
		"anthropic/claude-sonnet-4-6": {dollars(3, .30, 15), 1 * m, 64 * k},
		"anthropic/claude-sonnet-4-5": {dollars(3, .30, 15), 200 * k, 64 * k},
		"anthropic/claude-haiku-5-5":  {long(100*k, dollars(.10, .01, .50), dollars(.50, .05, 2.50)), 1 * m, 128 * k},
		"anthropic/claude-haiku-4-5":  {dollars(1, .10, 5), 200 * k, 64 * k},

		"openai/gpt-6.1-sol":   {longOpenAI(2, .10, 10), 1_050 * k, 128 * k},
		"openai/gpt-6.1-terra": {longOpenAI(1, .05, 5), 1_050 * k, 128 * k},
		"openai/gpt-6-astra":   {longOpenAI(10, 1, 50), 1_050 * k, 128 * k},
		"openai/gpt-6-sol":     {longOpenAI(2, .20, 10), 1_050 * k, 128 * k},
		"openai/gpt-6-luna":    {longOpenAI(.10, .01, .50), 1_050 * k, 128 * k},
		"openai/gpt-5.6":       {longOpenAI(4, .40, 20), 1_050 * k, 128 * k}, // is gpt-5.6-sol
		"openai/gpt-5.6-sol":   {longOpenAI(4, .40, 20), 1_050 * k, 128 * k},
		"openai/gpt-5.6-terra": {longOpenAI(2, .20, 12), 1_050 * k, 128 * k},
		"openai/gpt-5.6-luna":  {longOpenAI(.20, .02, 1.20), 1_050 * k, 128 * k},
		"openai/gpt-5.5":       {longOpenAI(5, .50, 30), 1_050 * k, 128 * k},
		"openai/gpt-5.4":       {longOpenAI(2.50, .25, 15), 1_050 * k, 128 * k},
		"openai/gpt-5.4-mini":  {dollars(.75, .075, 4.50), 400 * k, 128 * k},
		"openai/gpt-5.4-nano":  {dollars(.20, .02, 1.25), 400 * k, 128 * k},
		"openai/gpt-5.2":       {dollars(1.75, .175, 14), 400 * k, 128 * k},
		"openai/gpt-5.1":       {dollars(1.25, .125, 10), 400 * k, 128 * k},
		"openai/gpt-5":         {dollars(1.25, .125, 10), 400 * k, 128 * k},
		"openai/gpt-5-mini":    {dollars(.25, .025, 2), 400 * k, 128 * k},
		"openai/gpt-5-nano":    {dollars(.05, .005, .40), 400 * k, 128 * k},
		"openai/gpt-4.1":       {dollars(2, .50, 8), 1_047_576, 32_768},
		"openai/gpt-4.1-mini":  {dollars(.40, .10, 1.60), 1_047_576, 32_768},
		"openai/gpt-4o":        {dollars(2.50, 1.25, 10), 128 * k, 16_384},
		"openai/gpt-4o-mini":   {dollars(.15, .075, .60), 128 * k, 16_384},
		"openai/o3":            {Price{}, 200 * k, 100 * k},
		"openai/o4-mini":       {Price{}, 200 * k, 100 * k},
	}
}

// dollars is a price in US dollars per million tokens.
func dollars(input, cached, output float64) Price {
	micros := func(d float64) int64 { return int64(d*1e6 + .5) }
	return Price{Input: micros(input), Cached: micros(cached), Output: micros(output)}
}

// long is a price that is another for requests with more than from input tokens.
func long(from int64, p, above Price) Price {
	p.LongFrom, p.Long = from, Rates{above.Input, above.Cached, above.Output}
	return p
}

// longOpenAI is the step that OpenAI's models of 1.05 million tokens have: above 272,000 input tokens, input costs twice as much and output
// half as much again.
func longOpenAI(input, cached, output float64) Price {
	return long(272*k, dollars(input, cached, output), dollars(2*input, 2*cached, 1.5*output))
}
