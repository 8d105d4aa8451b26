package env

import (
	"context"
	"io"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
)

// Call is the shape of most commands: it asks the daemon, shows meanwhile what takes its time, and prints the answer as JSON or as text writes
// it. doing says it in a few words, such as "suspending invoices"; with "" nothing is shown.
func Call[T any](ctx context.Context, e *Env, doing string, ask func(*client.Client) (T, error), text func(io.Writer, T)) error {
	v, err := Ask(ctx, e, doing, ask)
	if err != nil {
		return err
	}
	return e.Print(v, func(w io.Writer) { text(w, v) })
}

// Ask is Call without the printing.
func Ask[T any](ctx context.Context, e *Env, doing string, ask func(*client.Client) (T, error)) (T, error) {
	c, err := e.Client(ctx)
	if err != nil {
		var none T
		return none, err
	}
	if doing == "" {
		return ask(c)
	}
	return Progress(e, doing, func() (T, error) { return ask(c) })
}

// All reads a whole list, page by page. cursor is what the next page is asked for with.
func All[T any](cursor func(T) string, read func(api.Page) (api.List[T], error)) (api.List[T], error) {
	all, page := api.List[T]{}, api.Page{Limit: api.MaxLimit}
	for {
		part, err := read(page)
		if err != nil {
			return all, err
		}
		all.Data = append(all.Data, part.Data...)
		if !part.HasMore || len(part.Data) == 0 {
			return all, nil
		}
		page.After = cursor(part.Data[len(part.Data)-1])
	}
}
