package session

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/cli/env"
)

type sendOptions struct {
	e                       *env.Env
	steer, queue, interrupt bool
	expected                int64
	follow                  bool
}

func newSend(e *env.Env) *cobra.Command {
	o := &sendOptions{e: e}
	cmd := &cobra.Command{
		Use: "send S TEXT", Short: "Send a message to a session", Args: cobra.ExactArgs(2),
		Long: "Send a message to a session; TEXT - reads it from standard input.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0], args[1]) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.steer, "steer", false, "deliver before the next model call")
	f.BoolVar(&o.queue, "queue", false, "deliver as the next turn (the default)")
	f.BoolVar(&o.interrupt, "interrupt", false, "stop what is running first")
	f.Int64Var(&o.expected, "expected-last-seq", -1, "refuse if the log has gone on since")
	f.BoolVarP(&o.follow, "follow", "f", false, "follow the session until its turn ends, as run does")
	cmd.MarkFlagsMutuallyExclusive("steer", "queue", "interrupt")
	return cmd
}

func (o *sendOptions) run(ctx context.Context, name, text string) error {
	if text == "-" {
		data, err := io.ReadAll(o.e.In)
		if err != nil {
			return env.Usage("reading the message: %v", err)
		}
		text = string(data)
	}
	if text == "" {
		return env.Usage("the message is empty")
	}
	m := api.Message{Text: text, Delivery: "queue"}
	switch {
	case o.steer:
		m.Delivery = "steer"
	case o.interrupt:
		m.Delivery = "interrupt"
	}
	req := api.SendMessages{Messages: []api.Message{m}}
	if o.expected >= 0 {
		seq := uint64(o.expected)
		req.ExpectedLastSeq = &seq
	}
	c, err := o.e.Client(ctx)
	if err != nil {
		return err
	}
	sent, err := c.SendMessages(ctx, name, req)
	if err != nil {
		return err
	}
	if !o.follow || len(sent.Data) == 0 {
		return o.e.Print(sent, func(w io.Writer) {
			for _, ev := range sent.Data {
				fmt.Fprintf(w, "sent as event %d\n", ev.Seq)
			}
		})
	}
	s, err := follow(ctx, o.e, c, name, sent.Data[len(sent.Data)-1].Seq)
	if err != nil {
		return err
	}
	if o.e.JSON {
		if err := o.e.PrintJSON(s); err != nil {
			return err
		}
	}
	return outcome(o.e, s)
}
